"""The owner's ledger: what is spent, and the very bytes that will be sent for it, are on disk in one commit before they leave.

The same query asked again gets the same bytes and spends nothing. An answer is drawn before its commit and without a lock: a
draw that is not committed went nowhere, so it may be drawn again. A crash before the commit leaves nothing spent; a crash after
it leaves an answer that the next process sends. Everything an owner is charged is in replace-one adjacency, so charges add up.

The file is complete by itself after every commit (a rollback journal, no write-ahead log): a copy of it knows every spend
whose answer has left.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from protocol.errors import BadInput

_SCHEMA = """
CREATE TABLE plans (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    campaign TEXT NOT NULL,
    epsilon REAL NOT NULL,
    aggregator BLOB
);
CREATE TABLE queries (
    id INTEGER PRIMARY KEY,
    plan INTEGER NOT NULL REFERENCES plans,
    digest BLOB NOT NULL,
    round INTEGER NOT NULL,
    at TEXT NOT NULL,
    answer BLOB,
    receipt INTEGER,
    UNIQUE (plan, digest)
);
CREATE TABLE spends (
    record BLOB NOT NULL,
    plan INTEGER NOT NULL REFERENCES plans,
    query INTEGER NOT NULL REFERENCES queries,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (record, plan)
) WITHOUT ROWID;
"""
# Since format 3: whose campaign a plan is of; the secret that records are named with; every record ever seen.
_SINCE_3 = """
CREATE TABLE secret (fingerprint BLOB NOT NULL);
CREATE TABLE known (record BLOB PRIMARY KEY) WITHOUT ROWID;
INSERT INTO known SELECT DISTINCT record FROM spends;
"""
_UPGRADES = {
    1: (
        "ALTER TABLE queries ADD COLUMN receipt INTEGER",
        "ALTER TABLE spends ADD COLUMN delta REAL NOT NULL DEFAULT 0",
    ),
    2: ("ALTER TABLE plans ADD COLUMN aggregator BLOB", *_SINCE_3.split(";")),
}
_ONE_QUERY = "plan = (SELECT id FROM plans WHERE digest = ?) AND digest = ?"
_FORMAT = 3
# Longer than any commit takes: whoever comes meanwhile waits for it.
WAIT_SECONDS = 600


@dataclass(frozen=True)
class Question:
    """One query, and the campaign it is of: a name and the key that signed its plan.

    A plan that asks the owner as a whole has a number of `rounds`; one that asks record by record has 0.
    """

    plan: bytes
    campaign: str
    aggregator: bytes
    query: bytes
    round_: int
    rounds: int = 0


@dataclass(frozen=True)
class Cost:
    """An (epsilon, delta), replace-one: what a plan costs a record, or the most that something may cost it."""

    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True)
class Limits:
    """The most that a record may lose in its life and in one campaign, and the fewest records that answer together."""

    record: Cost
    campaign: Cost
    fewest: int


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
    """A SQLite file, synced in full. One process at a time writes; others wait."""

    def __init__(self, path: Path) -> None:
        try:
            # What SQLite writes beside it gets the same mode.
            path.touch(mode=0o600)
            self._db = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
            for pragma in ("synchronous = EXTRA", "foreign_keys = ON", "temp_store = MEMORY"):
                self._db.execute(f"PRAGMA {pragma}")
            (mode,) = self._db.execute("PRAGMA journal_mode = DELETE").fetchone()
            if mode != "delete":
                raise BadInput(f"{path} is in use by an earlier version of this client; stop it first")
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, *_UPGRADES, _FORMAT):
                raise BadInput(f"{path} is a ledger of format {found}; this version reads format {_FORMAT}")
            if found != _FORMAT:
                self._make()
        except (sqlite3.Error, OSError) as error:
            raise BadInput(f"{path} cannot be used as a ledger: {error}") from None

    def close(self) -> None:
        self._db.close()

    def _make(self) -> None:
        """Bring a new or an earlier file to this format; another process may have done so meanwhile."""
        with self._transaction() as db:
            (found,) = db.execute("PRAGMA user_version").fetchone()
            if found == 0:
                for change in (_SCHEMA + _SINCE_3).split(";"):
                    db.execute(change)
            for earlier, changes in _UPGRADES.items():
                if 0 < found <= earlier:
                    for change in changes:
                        db.execute(change)
            db.execute(f"PRAGMA user_version = {_FORMAT}")

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        self._db.execute(f"BEGIN {kind}")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def bind(self, secret: bytes) -> None:
        """Tie the ledger to the secret that its records are named with; with another one no spend would be recognised."""
        mark = hashlib.blake2b(b"", key=secret, person=b"fingerprint", digest_size=16).digest()
        row = self._db.execute("SELECT fingerprint FROM secret").fetchone()
        if row is None:
            with self._transaction() as db:
                db.execute("INSERT INTO secret SELECT ? WHERE NOT EXISTS (SELECT 1 FROM secret)", (mark,))
                row = db.execute("SELECT fingerprint FROM secret").fetchone()
        if row[0] != mark:
            raise BadInput(
                "the ledger belongs to another secret.key than the one beside it: with this one no old spend would be "
                "recognised. Accepted is the secret that the ledger was made with (`confide-client restore`)"
            )

    def admit(self, records: Collection[bytes], *, new: bool = False) -> None:
        """Note the records of a file as known. That most of them are new to a ledger is an error, unless it is said.

        A file whose ids were rewritten looks like other records with full budgets; only the owner can tell.
        """
        self._place(records)
        with self._transaction() as db:
            (before,) = db.execute("SELECT COUNT(*) FROM known").fetchone()
            (strange,) = db.execute("SELECT COUNT(*) FROM asked WHERE record NOT IN (SELECT record FROM known)").fetchone()
            if before and 2 * strange > len(records) and not new:
                raise BadInput(
                    f"{strange} of {len(records)} records are new to the ledger, which knows {before}. If their ids were "
                    "rewritten, they would be given a second budget: restore the ids they had. If they really are others, "
                    "say so with --new-records"
                )
            db.execute("INSERT OR IGNORE INTO known SELECT record FROM asked ORDER BY record")

    def remembered(self, plan: bytes, query: bytes) -> bytes | None:
        """The answer that was given to a query."""
        row = self._db.execute(f"SELECT answer FROM queries WHERE {_ONE_QUERY}", (plan, query)).fetchone()
        return None if row is None else row[0]

    def answer(
        self,
        asked: Question,
        *,
        cost: Cost,
        limits: Limits,
        records: Sequence[bytes],
        draw: Callable[[list[int]], bytes],
        now: datetime,
    ) -> bytes | None:
        """Draw an answer from the places of the records that may still answer, charge them, and keep both; none if too few may.

        A record may answer when it has not answered this plan before and its totals, this charge included, stay within the
        limits. A plan that asks the owner as a whole is charged in full with its first query; the records charged then, and
        no others, take part in later ones, one query a round and at most `rounds` in all. If drawing fails the charge stays:
        that it failed is told to the other side, and may depend on the records.
        """
        self._place(records)
        places = self._able(asked, cost, limits)
        while places:
            answer, failed = None, None
            try:
                answer = draw(places)
            except Exception as error:
                failed = error
            with self._transaction() as db:
                given = db.execute(f"SELECT answer FROM queries WHERE {_ONE_QUERY}", (asked.plan, asked.query)).fetchone()
                if given is not None:
                    return given[0]
                drawn, places = places, self._able(asked, cost, limits)
                if places == drawn:
                    self._keep(asked, cost, [records[place] for place in places], answer, now)
            if places == drawn:
                if failed is not None:
                    raise failed
                return answer
            # Another process spent some of these records meanwhile: what was drawn from them went nowhere.
        return self.remembered(asked.plan, asked.query)

    def _place(self, records: Collection[bytes]) -> None:
        """Number the records that are asked, in memory and without a lock on the file."""
        self._db.execute("CREATE TEMP TABLE IF NOT EXISTS asked (place INTEGER PRIMARY KEY, record BLOB NOT NULL)")
        with self._transaction("DEFERRED") as db:
            db.execute("DELETE FROM asked")
            db.executemany("INSERT INTO asked VALUES (?, ?)", enumerate(records))

    def _able(self, asked: Question, cost: Cost, limits: Limits) -> list[int]:
        """The places of the records that may answer; empty when they are too few, or the round is answered."""
        plan = self._db.execute("SELECT id FROM plans WHERE digest = ?", (asked.plan,)).fetchone()
        plan_id = -1 if plan is None else plan[0]
        before = [row[0] for row in self._db.execute("SELECT round FROM queries WHERE plan = ?", (plan_id,))]
        if asked.rounds and before:
            if asked.round_ in before or len(before) >= asked.rounds:
                return []
            paid = "SELECT place FROM asked JOIN spends USING (record) WHERE plan = ? ORDER BY place"
            return [row[0] for row in self._db.execute(paid, (plan_id,))]
        # Plans of a ledger from before keys were kept count for every aggregator that uses the name.
        same = "spends.plan IN (SELECT id FROM plans WHERE campaign = :campaign AND COALESCE(aggregator, :key) = :key)"
        rows = self._db.execute(
            "SELECT place FROM asked LEFT JOIN spends USING (record) GROUP BY place HAVING "
            "COALESCE(SUM(spends.epsilon), 0) + :epsilon <= :record_epsilon AND "
            "COALESCE(SUM(spends.delta), 0) + :delta <= :record_delta AND "
            f"COALESCE(SUM(spends.epsilon) FILTER (WHERE {same}), 0) + :epsilon <= :campaign_epsilon AND "
            f"COALESCE(SUM(spends.delta) FILTER (WHERE {same}), 0) + :delta <= :campaign_delta AND "
            "COALESCE(SUM(spends.plan = :plan), 0) = 0 ORDER BY place",
            {
                "campaign": asked.campaign, "key": asked.aggregator, "plan": plan_id, "epsilon": cost.epsilon,
                "delta": cost.delta, "record_epsilon": limits.record.epsilon, "record_delta": limits.record.delta,
                "campaign_epsilon": limits.campaign.epsilon, "campaign_delta": limits.campaign.delta,
            },
        )  # fmt: skip
        places = [row[0] for row in rows]
        return places if len(places) >= limits.fewest else []

    def _keep(self, asked: Question, cost: Cost, records: list[bytes], answer: bytes | None, now: datetime) -> None:
        """Write an answer and, with the first of a plan of rounds or with any other, its charges."""
        plan = asked.plan, asked.campaign, cost.epsilon, asked.aggregator
        self._db.execute("INSERT OR IGNORE INTO plans (digest, campaign, epsilon, aggregator) VALUES (?, ?, ?, ?)", plan)
        (plan_id,) = self._db.execute("SELECT id FROM plans WHERE digest = ?", (asked.plan,)).fetchone()
        paid = asked.rounds and self._db.execute("SELECT 1 FROM queries WHERE plan = ?", (plan_id,)).fetchone() is not None
        row = plan_id, asked.query, asked.round_, now.isoformat(), answer
        insert = "INSERT INTO queries (plan, digest, round, at, answer) VALUES (?, ?, ?, ?, ?)"
        query_id = self._db.execute(insert, row).lastrowid
        if not paid:
            # In the order of the key, which is that of the file.
            spends = ((record, plan_id, query_id, cost.epsilon, cost.delta) for record in sorted(records))
            self._db.executemany("INSERT INTO spends VALUES (?, ?, ?, ?, ?)", spends)

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

    def spends(self) -> set[tuple[bytes, bytes]]:
        """Every spend, as the record and the digest of the plan."""
        return set(self._db.execute("SELECT s.record, p.digest FROM spends s JOIN plans p ON s.plan = p.id"))

    def copy(self, path: Path) -> None:
        """A whole and consistent copy in a new file, whatever other processes do meanwhile."""
        try:
            path.touch(mode=0o600, exist_ok=False)
            with sqlite3.connect(path) as other:
                other.execute("PRAGMA synchronous = EXTRA")
                self._db.backup(other)
            other.close()
        except (sqlite3.Error, OSError) as error:
            raise BadInput(f"{path} cannot be written as a copy of the ledger: {error}") from None
