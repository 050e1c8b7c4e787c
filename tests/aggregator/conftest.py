from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres import binaries, postgres


@pytest.fixture(scope="session")
def database() -> Iterator[Callable[[str], str]]:
    """URLs of empty databases by kind; one PostgreSQL serves all tests of a process."""
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
