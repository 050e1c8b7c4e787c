"""A ledger's secret and file, and its copies.

Two ledgers of the same records would each spend the whole budget. So a ledger is tied to its
secret and its file, a copy and a backup are refused, and a backup can only be merged.
"""

import hashlib
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

from confide.client.ledger.database import has_flag, open_database, transaction
from confide.client.ledger.schema import BACKUP
from confide.protocol.errors import BadInput

_SECRET = "SELECT fingerprint, inode FROM secret"
# Rows of the other ledger that this one lacks, under the numbers that its plans and queries have
# here. The order matters: queries need plans, spends need both.
_MERGE = (
    "INSERT OR IGNORE INTO plans (digest, campaign, epsilon, training) SELECT digest, campaign, "
    "epsilon, training FROM other.plans",
    "INSERT OR IGNORE INTO signers SELECT p.id, s.aggregator FROM other.signers s JOIN other.plans "
    "o ON s.plan = o.id JOIN plans p ON p.digest = o.digest",
    "INSERT OR IGNORE INTO queries (plan, digest, round, at, answer, receipt, together) SELECT "
    "p.id, q.digest, q.round, q.at, q.answer, q.receipt, q.together FROM other.queries q JOIN "
    "other.plans o ON q.plan = o.id JOIN plans p ON p.digest = o.digest",
    "INSERT OR IGNORE INTO spends SELECT s.record, p.id, q.id, s.epsilon, s.delta FROM "
    "other.spends s JOIN other.plans o ON s.plan = o.id JOIN plans p ON p.digest = o.digest JOIN "
    "other.queries a ON s.query = a.id JOIN queries q ON q.plan = p.id AND q.digest = a.digest",
    "INSERT OR IGNORE INTO known SELECT record FROM other.known",
    "INSERT OR IGNORE INTO persons SELECT record, person FROM other.persons",
    # A person pays for all its records: of a record that one ledger knew the person of, and the
    # other a charge, both are known only now.
    "INSERT INTO spends SELECT person, plan, MIN(query), SUM(epsilon), SUM(delta) FROM spends JOIN "
    "persons USING (record) WHERE TRUE GROUP BY person, plan ON CONFLICT (record, plan) DO UPDATE "
    "SET epsilon = MAX(epsilon, excluded.epsilon), delta = MAX(delta, excluded.delta)",
)


def bind(db: sqlite3.Connection, path: Path, secret: bytes) -> None:
    """Tie the ledger to a secret and to its file; see `Ledger.bind`."""
    inode = path.stat().st_ino
    if has_flag(db, BACKUP):
        raise BadInput(
            f"{path} is a backup; accepted is the folder it was made of, or `confide-client "
            "restore`"
        )
    row = db.execute(_SECRET).fetchone()
    if row is None:
        with transaction(db):
            db.execute(
                "INSERT INTO secret SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM secret)",
                (_fingerprint(secret), inode),
            )
            row = db.execute(_SECRET).fetchone()
    _check_fingerprint(row[0], path=path, secret=secret)
    if row[1] != inode:
        raise BadInput(
            f"{path} is a copy of a ledger: the original and this one would each spend the whole "
            "budget. Accepted is the original. If that is gone, `confide-client restore` brings "
            "the copy into a new folder"
        )


def back_up(db: sqlite3.Connection, path: Path) -> None:
    """Write a consistent copy into a new file, while other processes go on; see `Ledger.backup`."""
    try:
        path.touch(mode=0o600, exist_ok=False)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("PRAGMA synchronous = EXTRA")
        db.backup(other)
        other.execute("INSERT OR IGNORE INTO flags VALUES (?)", (BACKUP,))
        other.close()
    except (sqlite3.Error, OSError) as error:
        raise BadInput(f"{path} cannot be written as a copy of the ledger: {error}") from None


def merge(db: sqlite3.Connection, other: Path, *, path: Path, secret: bytes) -> None:
    """Add the rows of another ledger of the same secret; see `Ledger.merge`.

    A copy is read, in this format, so that the other file stays as it is.
    """
    try:
        with TemporaryDirectory(dir=path.parent, prefix=".merged.") as folder:
            db.execute("ATTACH DATABASE ? AS other", (str(_in_this_format(other, Path(folder))),))
            rows = db.execute("SELECT fingerprint FROM other.secret").fetchall()
            for (found,) in rows:
                _check_fingerprint(found, path=path, secret=secret)
            with transaction(db):
                for change in _MERGE:
                    db.execute(change)
            db.execute("DETACH DATABASE other")
    except (sqlite3.Error, OSError) as error:
        raise BadInput(f"{other} cannot be used as a ledger: {error}") from None


def _in_this_format(ledger: Path, folder: Path) -> Path:
    copy = folder / ledger.name
    source, target = sqlite3.connect(ledger), sqlite3.connect(copy)
    source.backup(target)
    target.close()
    source.close()
    open_database(copy).close()
    return copy


def _fingerprint(secret: bytes) -> bytes:
    return hashlib.blake2b(b"", key=secret, person=b"fingerprint", digest_size=16).digest()


def _check_fingerprint(found: bytes, *, path: Path, secret: bytes) -> None:
    if found != _fingerprint(secret):
        raise BadInput(
            f"{path} belongs to another secret.key than the one beside it: with this one no old "
            "spend would be recognised. Accepted is the secret that the ledger was made with "
            "(`confide-client restore`)"
        )
