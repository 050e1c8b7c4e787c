"""The mark beside a ledger: how many queries it has answered.

An older copy of the file that is put back in its place, as a copy by hand does, has the same secret
and the same inode, and knows less. The mark is a number in a file of its own, so it stays. It is no
part of the ledger: without it nothing is lost but this check.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from confide.client.ledger.database import transaction
from confide.protocol.errors import BadInput


def check_mark(db: sqlite3.Connection, ledger: Path) -> None:
    """Refuse a ledger with fewer queries than the one that was here before."""
    before, now = _read(ledger), _answered(db)
    if before > now:
        raise BadInput(
            f"{ledger} knows of {now} answers, and the ledger that was here of {before}: it is an "
            "older copy, and what was spent since would be spent again. Accepted is the newer "
            "file, or its backup (`confide-client restore`)"
        )


def raise_mark(db: sqlite3.Connection, ledger: Path) -> None:
    """Note how many queries the ledger has answered.

    The lock keeps the numbers of two processes in order. Nothing is synced, and a mark that cannot
    be written is none.
    """
    path, aside = _path(ledger), ledger.with_name(f".{ledger.name}.mark.{os.getpid()}")
    with transaction(db), suppress(OSError):
        aside.touch(mode=0o600)
        aside.write_text(str(_answered(db)))
        aside.replace(path)


def _path(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.mark")


def _read(ledger: Path) -> int:
    try:
        return int(_path(ledger).read_text())
    except (OSError, ValueError):
        return 0


def _answered(db: sqlite3.Connection) -> int:
    # Queries are never deleted.
    (count,) = db.execute("SELECT COALESCE(MAX(id), 0) FROM queries").fetchone()
    return int(count)
