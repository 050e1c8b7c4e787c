from collections.abc import Callable, Iterator

import pytest

from tests.support.servers.databases import empty_databases


@pytest.fixture(scope="session")
def database() -> Iterator[Callable[[str], str]]:
    """URLs of empty databases by kind; one PostgreSQL serves all tests of a process."""
    with empty_databases() as made:
        yield made
