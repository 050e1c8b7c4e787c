"""The owner's ledger: what is spent, and the very bytes that will be sent for it, are on disk in
one commit before they leave.

The same query asked again gets the same bytes and spends nothing. An answer is drawn before its
commit and without a lock: a draw that is not committed went nowhere, so it may be drawn again. A
crash before the commit leaves nothing spent; a crash after it leaves an answer that the next
process sends. Everything an owner is charged is in replace-one adjacency, so charges add up.

The file is complete by itself after every commit (a rollback journal, no write-ahead log): a copy
of it knows every spend whose answer has left.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from confide.protocol.errors import BadInput

_SCHEMA = """
CREATE TABLE plans (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    campaign TEXT NOT NULL,
    epsilon REAL NOT NULL
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
# Since format 3: who has signed a plan; the secret that records are named with, and the file that
# holds them; every record ever seen, and whose it is; whether this is a backup.
_SINCE_3 = """
CREATE TABLE signers (
    plan INTEGER NOT NULL REFERENCES plans, aggregator BLOB NOT NULL, PRIMARY KEY (plan, aggregator)
);
CREATE TABLE secret (fingerprint BLOB NOT NULL, inode INTEGER NOT NULL);
CREATE TABLE known (record BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE persons (record BLOB PRIMARY KEY, person BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE flags (name TEXT PRIMARY KEY);
"""
BACKUP, EARLIER_NAMES = "backup", "earlier names"
_UPGRADES = {
    1: (
        "ALTER TABLE queries ADD COLUMN receipt INTEGER",
        "ALTER TABLE spends ADD COLUMN delta REAL NOT NULL DEFAULT 0",
    ),
    2: (
        *_SINCE_3.split(";"),
        "INSERT INTO known SELECT DISTINCT record FROM spends",
        # Ids were taken as they were written: 007 and 7 were two names.
        f"INSERT INTO flags VALUES ('{EARLIER_NAMES}')",
    ),
}
_ONE_QUERY = "plan = (SELECT id FROM plans WHERE digest = ?) AND digest = ?"
_FORMAT = 3
# Longer than any commit takes: whoever comes meanwhile waits for it.
WAIT_SECONDS = 600


@dataclass(frozen=True)
class Question:
    """One query, and the campaign it is of: a name and the key that signed its plan.

    A plan that asks the owner as a whole has a number of `rounds`; one that asks record by record
    has 0.
    """

    plan: bytes
    campaign: str
    aggregator: bytes
    query: bytes
    round_: int
    rounds: int = 0


@dataclass(frozen=True)
class Cost:
    """An (epsilon, delta), replace-one: what a plan costs a record, or the most that something may
    cost it."""

    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True)
class Limits:
    """The most that a record may lose in its life and in one campaign, and the fewest records that
    answer together."""

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
        self._path = path
        try:
            if not path.exists():
                _make(path)
            self._db = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
            for pragma in ("synchronous = EXTRA", "foreign_keys = ON", "temp_store = MEMORY"):
                self._db.execute(f"PRAGMA {pragma}")
            (mode,) = self._db.execute("PRAGMA journal_mode = DELETE").fetchone()
            if mode != "delete":
                raise BadInput(
                    f"{path} is in use by an earlier version of this client; stop it first"
                )
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found == 0:
                raise BadInput(
                    f"{path} has lost its content; accepted is a backup (`confide-client restore`)"
                )
            if found not in (*_UPGRADES, _FORMAT):
                raise BadInput(
                    f"{path} is a ledger of format {found}; this version reads format {_FORMAT}"
                )
            if found != _FORMAT:
                self._upgrade()
        except (sqlite3.Error, OSError) as error:
            raise BadInput(f"{path} cannot be used as a ledger: {error}") from None

    def close(self) -> None:
        self._db.close()

    def _upgrade(self) -> None:
        """Bring an earlier file to this format; another process may have done so meanwhile."""
        with self._transaction() as db:
            (found,) = db.execute("PRAGMA user_version").fetchone()
            for earlier, changes in _UPGRADES.items():
                if found <= earlier:
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
        """Tie the ledger to the secret that its records are named with and to its file; refuse any
        other secret, a copy of the file, and a backup: they would know other records, or not what
        the original spends."""
        mark = hashlib.blake2b(b"", key=secret, person=b"fingerprint", digest_size=16).digest()
        inode = self._path.stat().st_ino
        if self._flag(BACKUP):
            raise BadInput(
                f"{self._path} is a backup; accepted is the folder it was made of, or "
                "`confide-client restore`"
            )
        row = self._db.execute("SELECT fingerprint, inode FROM secret").fetchone()
        if row is None:
            with self._transaction() as db:
                db.execute(
                    "INSERT INTO secret SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM secret)",
                    (mark, inode),
                )
                row = db.execute("SELECT fingerprint, inode FROM secret").fetchone()
        self._check_secret(row[0], mark)
        if row[1] != inode:
            raise BadInput(
                f"{self._path} is a copy of a ledger: the original and this one would each spend "
                "the whole budget. Accepted "
                "is the original. If that is gone, `confide-client restore` brings the copy into a "
                "new folder"
            )

    def _check_secret(self, found: bytes, wanted: bytes) -> None:
        if found != wanted:
            raise BadInput(
                f"{self._path} belongs to another secret.key than the one beside it: with this one "
                "no old spend would be "
                "recognised. Accepted is the secret that the ledger was made with (`confide-client "
                "restore`)"
            )

    def _flag(self, name: str) -> bool:
        return (
            self._db.execute("SELECT 1 FROM flags WHERE name = ?", (name,)).fetchone() is not None
        )

    def admit(
        self, records: Sequence[bytes], persons: Sequence[bytes] | None = None, *, new: bool = False
    ) -> None:
        """Note the records of a file as known, and whose they are. Most of them new to a ledger is
        an error, unless it is said.

        A file whose ids were rewritten looks like other records with full budgets; only the owner
        can tell. A record that is somebody's for the first time brings what it has spent; that it
        becomes somebody else's is an error.
        """
        self._place([(record,) for record in records])
        with self._transaction() as db:
            (before,) = db.execute("SELECT COUNT(*) FROM known").fetchone()
            (strange,) = db.execute(
                "SELECT COUNT(*) FROM asked WHERE record NOT IN (SELECT record FROM known)"
            ).fetchone()
            many = 2 * strange > len(records) or (strange and self._flag(EARLIER_NAMES))
            if before and many and not new:
                raise BadInput(
                    f"{strange} of {len(records)} records are new to the ledger, which knows "
                    f"{before}. If their ids were "
                    "rewritten, they would be given a second budget: restore the ids they had. If "
                    "they really are others, "
                    "say so with --new-records"
                )
            db.execute("DELETE FROM flags WHERE name = ?", (EARLIER_NAMES,))
            db.execute("INSERT OR IGNORE INTO known SELECT record FROM asked ORDER BY record")
            if persons is not None:
                self._link(dict(zip(records, persons, strict=True)))

    def _link(self, persons: dict[bytes, bytes]) -> None:
        """Note whose each record is; what a record spent before is its person's, too."""
        known = self.persons()
        moved = sum(known.get(record, person) != person for record, person in persons.items())
        if moved:
            raise BadInput(
                f"{moved} records belonged to other persons before; accepted is the person that "
                "each has had"
            )
        for record, person in persons.items():
            if record not in known:
                self._db.execute("INSERT INTO persons VALUES (?, ?)", (record, person))
                self._db.execute(
                    "INSERT INTO spends SELECT ?, plan, query, epsilon, delta FROM spends WHERE "
                    "record = ? ON CONFLICT "
                    "(record, plan) DO UPDATE SET epsilon = epsilon + excluded.epsilon, delta = "
                    "delta + excluded.delta",
                    (person, record),
                )

    def persons(self) -> dict[bytes, bytes]:
        """Whose the records are that ever were somebody's."""
        return dict(self._db.execute("SELECT record, person FROM persons"))

    def remembered(self, plan: bytes, query: bytes) -> bytes | None:
        """The answer that was given to a query."""
        row = self._db.execute(
            f"SELECT answer FROM queries WHERE {_ONE_QUERY}", (plan, query)
        ).fetchone()
        return None if row is None else row[0]

    def answer(
        self,
        asked: Question,
        *,
        cost: Cost,
        limits: Limits,
        payers: Sequence[tuple[bytes, ...]],
        draw: Callable[[list[int]], bytes],
        now: datetime,
    ) -> bytes | None:
        """Draw an answer from the places of the records that may still answer, charge them, and
        keep both; none if too few may.

        At each place pay the record and, where it is somebody's, the person. A place may answer
        when none of its payers has answered this plan before and their totals, this charge
        included, stay within the limits. A plan that asks the owner as a whole is charged in full
        with its first query; those charged then, and no others, take part in later ones, one query
        a round and at most `rounds` in all. If drawing fails the charge stays: that it failed is
        told to the other side, and may depend on the records.
        """
        places = self.able(asked, cost=cost, limits=limits, payers=payers)
        while places:
            answer, failed = None, None
            try:
                answer = draw(places)
            except Exception as error:
                failed = error
            with self._transaction() as db:
                given = db.execute(
                    f"SELECT answer FROM queries WHERE {_ONE_QUERY}", (asked.plan, asked.query)
                ).fetchone()
                if given is not None:
                    return given[0]
                drawn, places = places, self._able(asked, cost, limits)
                if places == drawn:
                    self._keep(
                        asked,
                        cost,
                        {payer for place in places for payer in payers[place]},
                        answer,
                        now,
                    )
            if places == drawn:
                if failed is not None:
                    raise failed
                return answer
            # Another process spent some of these records meanwhile: what was drawn from them went
            # nowhere.
        return self.remembered(asked.plan, asked.query)

    def able(
        self, asked: Question, *, cost: Cost, limits: Limits, payers: Sequence[tuple[bytes, ...]]
    ) -> list[int]:
        """The places that may answer now; empty when they are too few, or the round is answered."""
        self._place(payers)
        return self._able(asked, cost, limits)

    def _place(self, payers: Sequence[tuple[bytes, ...]]) -> None:
        """Number those who are asked, in memory and without a lock on the file."""
        self._db.execute(
            "CREATE TEMP TABLE IF NOT EXISTS asked (place INTEGER NOT NULL, record BLOB NOT NULL)"
        )
        with self._transaction("DEFERRED") as db:
            db.execute("DELETE FROM asked")
            db.executemany(
                "INSERT INTO asked VALUES (?, ?)",
                ((i, one) for i, each in enumerate(payers) for one in each),
            )

    def _able(self, asked: Question, cost: Cost, limits: Limits) -> list[int]:
        plan = self._db.execute("SELECT id FROM plans WHERE digest = ?", (asked.plan,)).fetchone()
        plan_id = -1 if plan is None else plan[0]
        before = [
            row[0]
            for row in self._db.execute("SELECT round FROM queries WHERE plan = ?", (plan_id,))
        ]
        if asked.rounds and before:
            if asked.round_ in before or len(before) >= asked.rounds:
                return []
            wrong = (
                "SELECT record FROM asked WHERE record NOT IN (SELECT record FROM spends WHERE "
                "plan = :plan)"
            )
        else:
            # Plans of a ledger from before keys were kept count for every aggregator that uses the
            # name.
            same = (
                "spends.plan IN (SELECT id FROM plans WHERE campaign = :campaign AND (id NOT IN "
                "(SELECT plan FROM signers) "
                "OR id IN (SELECT plan FROM signers WHERE aggregator = :key)))"
            )
            wrong = (
                "SELECT record FROM asked JOIN spends USING (record) GROUP BY place, record HAVING "
                "SUM(epsilon) + :epsilon > :record_epsilon OR SUM(delta) + :delta > :record_delta "
                "OR "
                f"COALESCE(SUM(epsilon) FILTER (WHERE {same}), 0) + :epsilon > :campaign_epsilon "
                "OR "
                f"COALESCE(SUM(delta) FILTER (WHERE {same}), 0) + :delta > :campaign_delta OR "
                "SUM(spends.plan = :plan)"
            )
            if cost.epsilon > min(limits.record.epsilon, limits.campaign.epsilon):
                return []
            if cost.delta > min(limits.record.delta, limits.campaign.delta):
                return []
        rows = self._db.execute(
            (
                "SELECT DISTINCT place FROM asked EXCEPT SELECT place FROM asked WHERE record IN "
                f"({wrong}) ORDER BY place"
            ),
            {
                "campaign": asked.campaign,
                "key": asked.aggregator,
                "plan": plan_id,
                "epsilon": cost.epsilon,
                "delta": cost.delta,
                "record_epsilon": limits.record.epsilon,
                "record_delta": limits.record.delta,
                "campaign_epsilon": limits.campaign.epsilon,
                "campaign_delta": limits.campaign.delta,
            },
        )
        places = [row[0] for row in rows]
        return places if len(places) >= limits.fewest else []

    def may_leave(self, plan: bytes, query: bytes, limits: Limits) -> bool:
        """Whether the records behind an answer that was drawn are within the limits as they are
        now, and enough."""
        row = self._db.execute(
            f"SELECT plan, id FROM queries WHERE {_ONE_QUERY}", (plan, query)
        ).fetchone()
        if row is None:
            return True
        paid = (
            "SELECT record FROM spends WHERE plan = :plan AND "
            "(query = :query OR NOT EXISTS (SELECT 1 FROM spends WHERE query = :query))"
        )
        here = "p.campaign = (SELECT campaign FROM plans WHERE id = :plan)"
        count, epsilon, delta, per_campaign, delta_per_campaign = self._db.execute(
            "SELECT SUM(record NOT IN (SELECT person FROM persons)), MAX(all_epsilon), "
            "MAX(all_delta), MAX(here_epsilon), "
            "MAX(here_delta) FROM (SELECT s.record AS record, SUM(s.epsilon) AS all_epsilon, "
            "SUM(s.delta) AS all_delta, "
            f"SUM(s.epsilon * ({here})) AS here_epsilon, SUM(s.delta * ({here})) AS here_delta "
            f"FROM spends s JOIN plans p ON s.plan = p.id WHERE s.record IN ({paid}) GROUP BY "
            "s.record)",
            {"plan": row[0], "query": row[1]},
        ).fetchone()
        within = epsilon <= limits.record.epsilon and delta <= limits.record.delta
        return (
            count >= limits.fewest
            and within
            and per_campaign <= limits.campaign.epsilon
            and delta_per_campaign <= limits.campaign.delta
        )

    def _keep(
        self, asked: Question, cost: Cost, payers: set[bytes], answer: bytes | None, now: datetime
    ) -> None:
        """Write an answer and, with the first of a plan of rounds or with any other, its
        charges."""
        plan = asked.plan, asked.campaign, cost.epsilon
        self._db.execute(
            "INSERT OR IGNORE INTO plans (digest, campaign, epsilon) VALUES (?, ?, ?)", plan
        )
        (plan_id,) = self._db.execute(
            "SELECT id FROM plans WHERE digest = ?", (asked.plan,)
        ).fetchone()
        self._db.execute("INSERT OR IGNORE INTO signers VALUES (?, ?)", (plan_id, asked.aggregator))
        paid = (
            asked.rounds
            and self._db.execute("SELECT 1 FROM queries WHERE plan = ?", (plan_id,)).fetchone()
            is not None
        )
        row = plan_id, asked.query, asked.round_, now.isoformat(), answer
        insert = "INSERT INTO queries (plan, digest, round, at, answer) VALUES (?, ?, ?, ?, ?)"
        query_id = self._db.execute(insert, row).lastrowid
        if not paid:
            # In the order of the key, which is that of the file.
            spends = (
                (payer, plan_id, query_id, cost.epsilon, cost.delta) for payer in sorted(payers)
            )
            self._db.executemany("INSERT INTO spends VALUES (?, ?, ?, ?, ?)", spends)

    def acknowledge(self, *, plan: bytes, query: bytes, code: int) -> None:
        """Note that the aggregator has answered for an answer, with a code; the first is kept."""
        with self._transaction() as db:
            db.execute(
                f"UPDATE queries SET receipt = ? WHERE {_ONE_QUERY} AND receipt IS NULL",
                (code, plan, query),
            )

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
            "(SELECT COUNT(*) FROM spends s WHERE s.plan = p.id AND s.record NOT IN (SELECT record "
            "FROM persons)), "
            "p.epsilon, MAX(q.at) "
            "FROM plans p JOIN queries q ON q.plan = p.id GROUP BY p.id ORDER BY MIN(q.at)"
        ).fetchall()
        return [Campaign(*row) for row in rows]

    def spent_by_record(self) -> tuple[int, float]:
        """How many records (or persons, where they are somebody's) have ever answered, and the most
        that any has spent."""
        row = self._db.execute(
            "SELECT COUNT(*), COALESCE(MAX(total), 0) FROM (SELECT SUM(epsilon) AS total FROM "
            "spends "
            "WHERE record NOT IN (SELECT record FROM persons) GROUP BY record)"
        ).fetchone()
        return int(row[0]), float(row[1])

    def cannot_pay(self, cost: Cost, limits: Limits) -> tuple[int, int]:
        """How many records (or persons) the ledger knows, and how many of them have too little left
        for a charge."""
        mine = "record NOT IN (SELECT record FROM persons)"
        (known,) = self._db.execute(
            "SELECT COUNT(*) FROM (SELECT record FROM known UNION SELECT person FROM persons) "
            "WHERE " + mine
        ).fetchone()
        (spent,) = self._db.execute(
            f"SELECT COUNT(*) FROM (SELECT record FROM spends WHERE {mine} GROUP BY record "
            "HAVING SUM(epsilon) + ? > ? OR SUM(delta) + ? > ?)",
            (cost.epsilon, limits.record.epsilon, cost.delta, limits.record.delta),
        ).fetchone()
        return int(known), int(spent)

    def backup(self, path: Path) -> None:
        """A whole and consistent copy in a new file, whatever other processes do meanwhile; it can
        be merged, not used."""
        try:
            path.touch(mode=0o600, exist_ok=False)
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("PRAGMA synchronous = EXTRA")
            self._db.backup(other)
            other.execute("INSERT OR IGNORE INTO flags VALUES (?)", (BACKUP,))
            other.close()
        except (sqlite3.Error, OSError) as error:
            raise BadInput(f"{path} cannot be written as a copy of the ledger: {error}") from None

    def merge(self, other: Path, secret: bytes) -> None:
        """Add all that another ledger of the same secret knows; what this one knows stays, so
        nothing is ever forgotten."""
        mark = hashlib.blake2b(b"", key=secret, person=b"fingerprint", digest_size=16).digest()
        try:
            self._db.execute("ATTACH DATABASE ? AS other", (str(other),))
            for (found,) in self._db.execute("SELECT fingerprint FROM other.secret").fetchall():
                self._check_secret(found, mark)
            with self._transaction() as db:
                for change in _MERGE:
                    db.execute(change)
            self._db.execute("DETACH DATABASE other")
        except sqlite3.Error as error:
            raise BadInput(f"{other} cannot be used as a ledger: {error}") from None


_MERGE = (
    "INSERT OR IGNORE INTO plans (digest, campaign, epsilon) SELECT digest, campaign, epsilon FROM "
    "other.plans",
    "INSERT OR IGNORE INTO signers SELECT p.id, s.aggregator FROM other.signers s JOIN other.plans "
    "o ON s.plan = o.id "
    "JOIN plans p ON p.digest = o.digest",
    "INSERT OR IGNORE INTO queries (plan, digest, round, at, answer, receipt) SELECT p.id, "
    "q.digest, q.round, q.at, q.answer, "
    "q.receipt FROM other.queries q JOIN other.plans o ON q.plan = o.id JOIN plans p ON p.digest = "
    "o.digest",
    "INSERT OR IGNORE INTO spends SELECT s.record, p.id, q.id, s.epsilon, s.delta FROM "
    "other.spends s "
    "JOIN other.plans o ON s.plan = o.id JOIN plans p ON p.digest = o.digest "
    "JOIN other.queries a ON s.query = a.id JOIN queries q ON q.plan = p.id AND q.digest = "
    "a.digest",
    "INSERT OR IGNORE INTO known SELECT record FROM other.known",
    "INSERT OR IGNORE INTO persons SELECT record, person FROM other.persons",
)


def _make(path: Path) -> None:
    """Write an empty ledger and give it its name in one step: a file that is there is whole, or has
    lost its content."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.touch(mode=0o600)
        made = sqlite3.connect(aside, isolation_level=None)
        made.executescript(f"BEGIN;{_SCHEMA}{_SINCE_3}PRAGMA user_version = {_FORMAT};COMMIT;")
        made.close()
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
