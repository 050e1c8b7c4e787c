"""The owner's ledger: every spend is on disk before a randomiser runs, and every answer before it is sent.

For each query the ledger goes through two commits: *spent* (which records, how much, for whom) and *answered* (the very bytes
that will be sent). The same query asked again gets the same bytes and spends nothing. A crash between the two commits leaves
records that are spent and unsent: they are lost to that campaign, and nothing is drawn for them again.
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
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "temp_store = MEMORY"):
                self._db.execute(f"PRAGMA {pragma}")
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, 1, _FORMAT):
                raise BadInput(f"{path} is a ledger of format {found}; this version reads format {_FORMAT}")
            if found == 0:
                self._db.executescript(_SCHEMA + f"PRAGMA user_version = {_FORMAT};")
            elif found != _FORMAT:
                self._upgrade()
        except sqlite3.Error as error:
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
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def answered(self, plan: bytes, query: bytes) -> tuple[bool, bytes | None]:
        """Whether the query was ever spent on, and the answer that was remembered for it."""
        row = self._db.execute(f"SELECT answer FROM queries WHERE {_ONE_QUERY}", (plan, query)).fetchone()
        return row is not None, None if row is None else row[0]

    def spend(
        self, *, plan: bytes, query: bytes, round_: int, campaign: str, epsilon: float, limit: float, records: Sequence[bytes],
        enough: Callable[[int], bool], now: datetime, delta: float = 0.0, delta_limit: float = 0.0, rounds: int | None = None,
    ) -> list[int]:  # fmt: skip
        """Charge the records that may still answer, durably, and return their places; none when they are not `enough`.

        A record may answer when it has not answered this plan before and its totals, this charge included, stay within the
        limits. The query is noted in the same commit, so a second asker of it finds it spent. A plan that asks the owner as a
        whole has a number of `rounds` and is charged in full with its first query; the records charged then, and no others,
        take part in later ones, one query a round and at most `rounds` in all.
        """
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO plans (digest, campaign, epsilon) VALUES (?, ?, ?)", (plan, campaign, epsilon))
            (plan_id,) = db.execute("SELECT id FROM plans WHERE digest = ?", (plan,)).fetchone()
            db.execute("CREATE TEMP TABLE IF NOT EXISTS asked (place INTEGER PRIMARY KEY, record BLOB NOT NULL)")
            db.execute("DELETE FROM asked")
            db.executemany("INSERT INTO asked VALUES (?, ?)", enumerate(records))
            (before,) = db.execute("SELECT COUNT(*) FROM queries WHERE plan = ?", (plan_id,)).fetchone()
            if rounds is not None and before:
                return self._again(plan_id, query, round_, now) if before < rounds else []
            rows = db.execute(
                "SELECT place FROM asked LEFT JOIN spends USING (record) GROUP BY place "
                "HAVING COALESCE(SUM(spends.epsilon), 0) + ? <= ? AND COALESCE(SUM(spends.delta), 0) + ? <= ? "
                "AND COALESCE(SUM(spends.plan = ?), 0) = 0 ORDER BY place",
                (epsilon, limit, delta, delta_limit, plan_id),
            ).fetchall()
            places = [row[0] for row in rows]
            if not enough(len(places)):
                return []
            inserted = db.execute(
                "INSERT INTO queries (plan, digest, round, at) VALUES (?, ?, ?, ?)", (plan_id, query, round_, now.isoformat())
            )
            # In the order of the key, which is that of the file.
            spends = sorted((records[place], plan_id, inserted.lastrowid, epsilon, delta) for place in places)
            db.executemany("INSERT INTO spends VALUES (?, ?, ?, ?, ?)", spends)
        return places

    def _again(self, plan_id: int, query: bytes, round_: int, now: datetime) -> list[int]:
        """A later query of a plan that is paid for: the records that paid, in the caller's order; none for a second one of
        the same round, whose noise may be that of the first."""
        if self._db.execute("SELECT 1 FROM queries WHERE plan = ? AND round = ?", (plan_id, round_)).fetchone():
            return []
        found = self._db.execute("SELECT place FROM asked JOIN spends USING (record) WHERE plan = ? ORDER BY place", (plan_id,))
        places = [row[0] for row in found.fetchall()]
        self._db.execute(
            "INSERT INTO queries (plan, digest, round, at) VALUES (?, ?, ?, ?)", (plan_id, query, round_, now.isoformat())
        )
        return places

    def remember(self, *, plan: bytes, query: bytes, answer: bytes) -> None:
        """Keep the bytes that are about to be sent; an answer is written once and never changed."""
        with self._transaction() as db:
            changed = db.execute(
                f"UPDATE queries SET answer = ? WHERE {_ONE_QUERY} AND answer IS NULL", (answer, plan, query)
            ).rowcount
            if changed != 1:
                raise BadInput("an answer was remembered before, or nothing was spent on its query")

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
