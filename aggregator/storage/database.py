"""Engines for a database URL, and upgrades of its tables.

The database is a SQLite file by default, or PostgreSQL where several machines serve.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from confide.protocol.errors import BadInput

DEFAULT = "sqlite:///confide.sqlite"
ACCEPTED = "accepted are a file, sqlite:///FILE and postgresql://USER@HOST/NAME"
# Any number, the same in every process: upgrades wait for each other.
_UPGRADE_LOCK = 0xC0F1DE
# PostgreSQL's code for a write where only reading is allowed.
_READ_ONLY = "25006"
_PRAGMAS = (
    # Batches are large, so pages are long. The write-ahead log is moved into the file by `tidy`, or
    # once it holds 512 MB.
    "page_size = 32768",
    "wal_autocheckpoint = 16384",
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    # Deleted bytes are overwritten.
    "secure_delete = ON",
    "busy_timeout = 30000",
)


def connect(url: str) -> Engine:
    """An engine whose every transaction is durable once it has been committed."""
    if "://" not in url:
        url = f"sqlite:///{url}"
    try:
        made = make_url(url)
        if made.get_backend_name() == "postgresql":
            # The parser would guess where the password ends, and a wrong guess would show part of
            # it as the host.
            if url.count("@") > 1:
                raise BadInput(
                    f"database is {masked(url)!r} with more than one @; accepted is one, and %40 "
                    "within a password"
                )
            engine = create_engine(
                made.set(drivername="postgresql+psycopg"), pool_pre_ping=True, hide_parameters=True
            )
            event.listen(engine, "handle_error", _start_anew)
            return engine
        if made.get_backend_name() != "sqlite":
            raise BadInput(f"database is {masked(url)!r}; {ACCEPTED}")
        if made.database is None or not Path(made.database).resolve().parent.is_dir():
            raise BadInput(
                f"database {masked(url)!r} is in a folder that does not exist; {ACCEPTED}"
            )
        _create(made.database)
        # A cached statement would keep the batches that were written with it in memory.
        given = {"check_same_thread": False, "cached_statements": 0}
        # Errors must not carry the values of a statement into the logs.
        engine = create_engine(made, connect_args=given, hide_parameters=True)
    # A port that is no number, or half an address, is a ValueError.
    except (ArgumentError, ValueError):
        raise BadInput(f"database is {masked(url)!r}; {ACCEPTED}") from None
    event.listen(engine, "handle_error", _start_anew)
    event.listen(engine, "do_connect", _only_writable)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def masked(url: str) -> str:
    """A URL that may be shown: without its password and without its options.

    An option may be another password.

    The text is not parsed as a URL, since an invalid one may hold a password too.
    """
    scheme, mark, rest = url.partition("://")
    if rest.count("@") > 1:
        return f"{scheme}{mark}***"
    name, at, place = rest.rpartition("@")
    place, options, _ = place.partition("?")
    secret, more = ":***" if ":" in name else "", "?***" if options else ""
    return f"{scheme}{mark}{name.partition(':')[0]}{secret}{at}{place}{more}"


def writing(engine: Engine) -> Engine:
    """The engine for transactions that write.

    On SQLite they take the lock for writing at their start.
    """
    return engine.execution_options(writing=True)


def tidy(engine: Engine, *, wholly: bool = False) -> None:
    """Move pages from the write-ahead log to the database file; a failure is ignored.

    It is called when no batch waits.

    Wholly: wait for those who read, and leave nothing in the log that was written ahead.
    """
    if engine.dialect.name == "sqlite":
        with suppress(SQLAlchemyError, sqlite3.OperationalError), engine.connect() as connection:
            connection.connection.cursor().execute(
                f"PRAGMA wal_checkpoint({'TRUNCATE' if wholly else 'PASSIVE'})"
            )


def insert(kind: str, table: Any) -> Any:
    """An insert that accepts a clause for rows that exist already, in the dialect of this kind."""
    return (postgresql if kind == "postgresql" else sqlite).insert(table)


def upgrade(engine: Engine) -> None:
    """Bring the tables to this version, in one transaction."""
    try:
        with writing(engine).begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
            if _version(connection) != latest_version():
                _migrate(connection)
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise BadInput(f"database {_place(engine)} cannot be used: {reason}") from None


def latest_version() -> str:
    """The version of the tables that the last migration makes, which its file name begins with."""
    files = (Path(__file__).parent / "migrations" / "versions").glob("[0-9]*.py")
    return max(file.name.partition("_")[0] for file in files)


def _version(connection: Connection) -> str | None:
    """The version of the tables of a database; None if it has none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _migrate(connection: Connection) -> None:
    # Loaded only here, because most processes start on tables that are up to date.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "confide.aggregator.storage:migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError:
        raise BadInput(
            f"database {_place(connection.engine)} has the tables of a version that this program "
            "does not know, probably a later one; accepted is one that this version or an earlier "
            "one made"
        ) from None


def _place(engine: Engine) -> str:
    return masked(engine.url.render_as_string(hide_password=True))


def _create(file: str) -> None:
    """Create the file of a new database, readable by its owner only.

    SQLite gives the files beside it the same mode.

    One that is there is not touched: closing it again would end the locks that this process holds
    on it.
    """
    # Where it cannot be made, the database says why.
    with suppress(OSError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _prepare(connection: Any, _: Any) -> None:
    # Transactions begin where `_begin` says, not where the driver guesses.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _only_writable(_: Any, __: Any, arguments: Any, ___: Any) -> None:
    """Refuse to open files that cannot be written.

    SQLite would open them read-only, and later connections would be read-only too as long as one of
    these is open.
    """
    for path in (Path(f"{arguments[0]}{end}") for end in ("", "-wal", "-shm")):
        if path.exists() and not os.access(path, os.W_OK):
            raise sqlite3.OperationalError(f"{path.name} may only be read")


def _start_anew(context: Any) -> None:
    """Replace all connections after a failure of the disk or a write that was not allowed."""
    error = context.original_exception
    if (
        isinstance(error, sqlite3.OperationalError)
        or getattr(error, "sqlstate", None) == _READ_ONLY
    ):
        context.is_disconnect = True


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
