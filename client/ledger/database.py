"""The ledger's SQLite file: created whole, synced in full, and complete after every commit.

It has a rollback journal and no write-ahead log, so a copy of the one file holds every spend whose
answer has left.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from confide.client.ledger.schema import ASKED, CREATE, FORMAT, UPGRADES
from confide.protocol.errors import BadInput

# How long a process waits for another one's commit; longer than any commit takes.
WAIT_SECONDS = 600


def open_database(path: Path, *, synced: bool = True) -> sqlite3.Connection:
    """Open a ledger's file; create a missing one, and upgrade one of an earlier format.

    Commits of a ledger that is not `synced` survive the process unless it is killed in the middle
    of one, and not a loss of power: enough for a simulation, whose ledgers end with it, and which
    would wait for the disk most of the time.
    """
    commits, journal = ("EXTRA", "delete") if synced else ("OFF", "memory")
    try:
        if not path.exists():
            _create(path)
        db = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
        for pragma in (f"synchronous = {commits}", "foreign_keys = ON", "temp_store = MEMORY"):
            db.execute(f"PRAGMA {pragma}")
        (mode,) = db.execute(f"PRAGMA journal_mode = {journal}").fetchone()
        if mode != journal:
            raise BadInput(f"{path} is in use by an earlier version of this client; stop it first")
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if found == 0:
            raise BadInput(
                f"{path} has lost its content; accepted is a backup (`confide-client restore`)"
            )
        if found not in (*UPGRADES, FORMAT):
            raise BadInput(
                f"{path} is a ledger of format {found}; this version reads format {FORMAT}"
            )
        if found != FORMAT:
            _upgrade(db)
        # In memory, and of this connection alone.
        db.execute(ASKED)
        return db
    except (sqlite3.Error, OSError) as error:
        raise BadInput(f"{path} cannot be used as a ledger: {error}") from None


@contextmanager
def transaction(db: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Commit at the end of the block; roll back if it raises. IMMEDIATE locks out other writers."""
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def has_flag(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM flags WHERE name = ?", (name,)).fetchone() is not None


def _create(path: Path) -> None:
    """Write an empty ledger under another name, then link it to its own.

    So a ledger that exists was written in full; an empty file has lost its content. The first
    commit syncs it, because nothing is in it before.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.touch(mode=0o600)
        aside.write_bytes(_empty())
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)


@cache
def _empty() -> bytes:
    """The bytes of a ledger without content."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.executescript(CREATE)
    found = made.serialize()
    made.close()
    return found


def _upgrade(db: sqlite3.Connection) -> None:
    """Bring a file of an earlier format to this one, unless another process has just done so."""
    with transaction(db):
        (found,) = db.execute("PRAGMA user_version").fetchone()
        for earlier, changes in UPGRADES.items():
            if found <= earlier:
                for change in changes:
                    db.execute(change)
        db.execute(f"PRAGMA user_version = {FORMAT}")
