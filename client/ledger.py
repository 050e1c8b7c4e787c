"""The owner's ledger: what is spent, and the very bytes that will be sent for it, are on disk in one commit before they leave.

The same query asked again gets the same bytes and spends nothing. A crash before the commit leaves nothing spent, and what was
drawn went nowhere, so it may be drawn again; a crash after it leaves an answer that the next process sends.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from protocol.errors import BadInput

_SCHEMA = """
CREATE TABLE IF NOT EXISTS plans (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    campaign TEXT NOT NULL,
    epsilon REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS queries (
    id INTEGER PRIMARY KEY,
    plan INTEGER NOT NULL REFERENCES plans,
    digest BLOB NOT NULL,
    round INTEGER NOT NULL,
    at TEXT NOT NULL,
    answer BLOB,
    receipt INTEGER,
    UNIQUE (plan, digest)
);
CREATE TABLE IF NOT EXISTS spends (
    record BLOB NOT NULL,
    plan INTEGER NOT NULL REFERENCES plans,
    query INTEGER NOT NULL REFERENCES queries,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (record, plan)
) WITHOUT ROWID;
"""
_ONE_QUERY = "plan = (SELECT id FROM plans WHERE digest = ?) AND digest = ?"
_FORMAT = 2
# Longer than drawing an answer takes: whoever comes meanwhile waits for it.
WAIT_SECONDS = 600
# From format 1: whether the aggregator has acknowledged an answer, and with which code; and the delta of a spend.
_UPGRADE = (
    "ALTER TABLE queries ADD COLUMN receipt INTEGER",
    "ALTER TABLE spends ADD COLUMN delta REAL NOT NULL DEFAULT 0",
)


@dataclass(frozen=True)
class Campaign:
    """What one campaign has cost this owner so far."""

    campaign: str
    plan: bytes
    queries: int
    unanswered: int
    records: int
    epsilon: float
    last: str


class Ledger:
    """A SQLite file, written ahead and synced in full. One process at a time writes; others wait."""

    def __init__(self, path: Path) -> None:
        try:
            # What SQLite writes beside it gets the same mode.
            path.touch(mode=0o600)
            self._db = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "temp_store = MEMORY"):
                self._db.execute(f"PRAGMA {pragma}")
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, 1, _FORMAT):
                raise BadInput(f"{path} is a ledger of format {found}; this version reads format {_FORMAT}")
            if found == 0:
                self._db.executescript(_SCHEMA + f"PRAGMA user_version = {_FORMAT};")
            elif found != _FORMAT:
                self._upgrade()
        except (sqlite3.Error, OSError) as error:
            raise BadInput(f"{path} cannot be used as a ledger: {error}") from None

    def close(self) -> None:
        self._db.close()

    def _upgrade(self) -> None:
        with self._transaction() as db:
            if db.execute("PRAGMA user_version").fetchone()[0] != _FORMAT:
                for change in _UPGRADE:
                    db.execute(change)
                db.execute(f"PRAGMA user_version = {_FORMAT}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def remembered(self, plan: bytes, query: bytes) -> bytes | None:
        """The answer that was given to a query."""
        row = self._db.execute(f"SELECT answer FROM queries WHERE {_ONE_QUERY}", (plan, query)).fetchone()
        return None if row is None else row[0]

    def answer(
        self, *, plan: bytes, query: bytes, round_: int, campaign: str, epsilon: float, limit: float, records: Sequence[bytes],
        fewest: int, draw: Callable[[list[int]], bytes], now: datetime, delta: float = 0.0,
        delta_limit: float = 0.0, rounds: int = 0,
    ) -> bytes | None:  # fmt: skip
        """Charge the records that may still answer, draw an answer from their places, and keep both; none if too few may.

        A record may answer when it has not answered this plan before and its totals, this charge included, stay within the
        limits. Other askers wait until this one is done, and find the query answered. A plan that asks the owner as a whole
        has a number of `rounds` and is charged in full with its first query; the records charged then, and no others, take
        part in later ones, one query a round and at most `rounds` in all. If drawing fails the charge stays: that it failed is
        told to the other side, and may depend on the records.
        """
        answer, failed = None, None
        with self._transaction() as db:
            given = db.execute(f"SELECT answer FROM queries WHERE {_ONE_QUERY}", (plan, query)).fetchone()
            if given is not None:
                return given[0]
            db.execute("INSERT OR IGNORE INTO plans (digest, campaign, epsilon) VALUES (?, ?, ?)", (plan, campaign, epsilon))
            (plan_id,) = db.execute("SELECT id FROM plans WHERE digest = ?", (plan,)).fetchone()
            db.execute("CREATE TEMP TABLE IF NOT EXISTS asked (place INTEGER PRIMARY KEY, record BLOB NOT NULL)")
            db.execute("DELETE FROM asked")
            db.executemany("INSERT INTO asked VALUES (?, ?)", enumerate(records))
            before = [row[0] for row in db.execute("SELECT round FROM queries WHERE plan = ?", (plan_id,))]
            paid = bool(rounds and before)
            if paid:
                # A second query of the same round might get the noise of the first.
                places = self._paid(plan_id) if len(before) < rounds and round_ not in before else []
            else:
                places = self._able(plan_id, epsilon, limit, delta, delta_limit)
            if len(places) < (1 if paid else fewest):
                return None
            try:
                answer = draw(places)
            except Exception as error:
                failed = error
            row = plan_id, query, round_, now.isoformat(), answer
            query_id = db.execute("INSERT INTO queries (plan, digest, round, at, answer) VALUES (?, ?, ?, ?, ?)", row).lastrowid
            if not paid:
                # In the order of the key, which is that of the file.
                spends = sorted((records[place], plan_id, query_id, epsilon, delta) for place in places)
                db.executemany("INSERT INTO spends VALUES (?, ?, ?, ?, ?)", spends)
        if failed is not None:
            raise failed
        return answer

    def _able(self, plan_id: int, epsilon: float, limit: float, delta: float, delta_limit: float) -> list[int]:
        """The places of the records that have not answered this plan and can pay for it."""
        rows = self._db.execute(
            "SELECT place FROM asked LEFT JOIN spends USING (record) GROUP BY place "
            "HAVING COALESCE(SUM(spends.epsilon), 0) + ? <= ? AND COALESCE(SUM(spends.delta), 0) + ? <= ? "
            "AND COALESCE(SUM(spends.plan = ?), 0) = 0 ORDER BY place",
            (epsilon, limit, delta, delta_limit, plan_id),
        )
        return [row[0] for row in rows]

    def _paid(self, plan_id: int) -> list[int]:
        """The places of the records that have paid for this plan."""
        rows = self._db.execute("SELECT place FROM asked JOIN spends USING (record) WHERE plan = ? ORDER BY place", (plan_id,))
        return [row[0] for row in rows]

    def acknowledge(self, *, plan: bytes, query: bytes, code: int) -> None:
        """Note that the aggregator has answered for an answer, with a code; the first is kept."""
        with self._transaction() as db:
            db.execute(f"UPDATE queries SET receipt = ? WHERE {_ONE_QUERY} AND receipt IS NULL", (code, plan, query))

    def unacknowledged(self, plan: bytes) -> list[tuple[bytes, bytes]]:
        """The queries whose answers may not have arrived, with those answers, oldest first."""
        return self._db.execute(
            "SELECT q.digest, q.answer FROM queries q JOIN plans p ON q.plan = p.id "
            "WHERE p.digest = ? AND q.answer IS NOT NULL AND q.receipt IS NULL ORDER BY q.id",
            (plan,),
        ).fetchall()

    def campaigns(self) -> list[Campaign]:
        """Every campaign answered so far, oldest first."""
        rows = self._db.execute(
            "SELECT p.campaign, p.digest, COUNT(*), SUM(q.answer IS NULL), "
            "(SELECT COUNT(*) FROM spends s WHERE s.plan = p.id), p.epsilon, MAX(q.at) "
            "FROM plans p JOIN queries q ON q.plan = p.id GROUP BY p.id ORDER BY MIN(q.at)"
        ).fetchall()
        return [Campaign(*row) for row in rows]

    def spent_by_record(self) -> tuple[int, float]:
        """How many records have ever answered, and the most that any of them has spent."""
        row = self._db.execute(
            "SELECT COUNT(*), COALESCE(MAX(total), 0) FROM (SELECT SUM(epsilon) AS total FROM spends GROUP BY record)"
        ).fetchone()
        return int(row[0]), float(row[1])
