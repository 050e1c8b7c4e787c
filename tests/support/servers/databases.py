"""The databases that the server runs on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from confide.aggregator.storage.database import connect, writing
from tests.support.servers.postgres import binaries, postgres

needs_postgres = pytest.mark.skipif(
    binaries() is None, reason="no PostgreSQL: neither the package pgserver nor initdb here"
)
DATABASES = [pytest.param("sqlite"), pytest.param("postgres", marks=needs_postgres)]


@contextmanager
def empty_databases() -> Iterator[Callable[[str], str]]:
    """Yield URLs of empty databases by kind, of one PostgreSQL; "" is a file of the caller's."""
    if binaries() is None:
        yield lambda kind: ""
        return
    with postgres(Path("/tmp")) as url:
        made = 0

        def empty(kind: str) -> str:
            nonlocal made
            if kind == "sqlite":
                return ""
            made += 1
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(f"CREATE DATABASE test{made}".encode())
            return url.replace("/postgres?", f"/test{made}?")

        yield empty


def at_version(url: str, version: str) -> None:
    """Make the tables of an earlier version."""
    config = Config()
    config.set_main_option("script_location", "confide.aggregator.storage:migrations")
    engine = connect(url)
    with writing(engine).begin() as db:
        config.attributes["connection"] = db
        command.upgrade(config, version)
    engine.dispose()
