"""The databases that the server runs on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres import binaries, postgres

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
