"""Full disks and read-only databases, under running servers."""

import os
import subprocess
from collections.abc import Iterable
from typing import Any, Protocol

import psycopg
from sqlalchemy import text

from tests.support.servers.postgres import unprivileged
from tests.support.servers.servers import Place, Running

# Less than SQLite's first page in its write-ahead log, and enough for the server's own log.
SMALL = 32 << 10
# More than a segment of PostgreSQL's log: tables cannot grow, but existing data can be used.
LARGE = 17 << 20
UNLIMITED = "unlimited"


def obeying_modes() -> tuple[str, ...]:
    """The command prefix that makes a server obey file modes, even as root."""
    return ("setpriv", "--bounding-set=-dac_override") if os.geteuid() == 0 else ()


def limit_files(pids: Iterable[int], size: int | str, user: str | None = None) -> None:
    """Limit the size of files that these processes of this user can write from now on.

    A process that has ended is ignored.
    """
    # A separate program, because forking as another user is not safe beside the threads of gRPC.
    through = [] if user is None else ["setpriv", f"--reuid={user}", "--clear-groups"]
    for pid in pids:
        subprocess.run([*through, "prlimit", "--pid", str(pid), f"--fsize={size}:"], check=False)


class Disk(Protocol):
    """The failures of a database's disk while a server runs."""

    # The server's log message in either case.
    full: str
    locked: str

    def fill(self) -> None: ...
    def empty(self) -> None: ...
    def lock(self) -> None: ...
    def unlock(self) -> None: ...


class SqliteDisk:
    """The folder of a SQLite file, for one server."""

    full, locked = "disk I/O error", "may only be read"

    def __init__(self, place: Place, server: Running) -> None:
        self._place, self._server = place, server

    def fill(self) -> None:
        limit_files([self._server.process.pid], SMALL)

    def empty(self) -> None:
        limit_files([self._server.process.pid], UNLIMITED)

    def lock(self) -> None:
        self._modes(0o444, 0o555)

    def unlock(self) -> None:
        self._modes(0o644, 0o755)

    def _modes(self, files: int, folder: int) -> None:
        for path in self._place.folder.glob("confide.sqlite*"):
            path.chmod(files)
        self._place.folder.chmod(folder)


class PostgresDisk:
    """The disk of a PostgreSQL server, for a database of its own."""

    full, locked = "File too large", "read-only transaction"

    def __init__(self, place: Place, campaign: str) -> None:
        self._place, self._campaign = place, campaign

    def fill(self) -> None:
        with self._place.store.engine.begin() as db:
            row = {"campaign": self._campaign, "digest": bytes(32), "answer": os.urandom(LARGE)}
            columns = (
                "(campaign, round, owner, digest, reports, answer) VALUES (:campaign, 999, 1, "
                ":digest, 0, :answer)"
            )
            db.execute(text(f"INSERT INTO batches {columns}"), row)
        toast = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'batches'"
        self._limit(int(self._run(toast)[0][0]))

    def empty(self) -> None:
        self._limit(UNLIMITED)

    def lock(self) -> None:
        self._run("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")

    def unlock(self) -> None:
        self._run("ALTER SYSTEM SET default_transaction_read_only = off", "SELECT pg_reload_conf()")

    def _limit(self, size: int | str) -> None:
        """Limit every process of the server.

        These are the first process, from which later ones inherit the limit, and all present ones.
        """
        first = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int AS pid"
        found = self._run(
            f"{first} UNION SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        limit_files([row[0] for row in found], size, unprivileged())

    def _run(self, *statements: str) -> list[Any]:
        with psycopg.connect(self._place.url, autocommit=True) as db:
            for statement in statements:
                found = db.execute(statement.encode())
            return found.fetchall()
