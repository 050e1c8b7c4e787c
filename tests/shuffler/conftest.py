from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.servers.databases import DATABASES, empty_databases
from tests.support.servers.servers import Place
from tests.support.servers.shufflers import ShufflerPlace


@pytest.fixture
def shuffler(place: Place, tmp_path: Path) -> Iterator[ShufflerPlace]:
    """A shuffler's folder and database, enrolled at the aggregator."""
    made = ShufflerPlace(tmp_path / "shuffler", aggregator=place)
    yield made
    made.close()


@pytest.fixture(scope="session")
def database() -> Iterator[Callable[[str], str]]:
    """URLs of empty databases by kind; one PostgreSQL serves all tests of a process."""
    with empty_databases() as made:
        yield made


@pytest.fixture(params=DATABASES)
def on_either(
    request: pytest.FixtureRequest, database: Callable[[str], str], place: Place, tmp_path: Path
) -> Iterator[ShufflerPlace]:
    """A shuffler's folder, and its database of either kind, enrolled at the aggregator."""
    made = ShufflerPlace(tmp_path / "shuffler", database(request.param), aggregator=place)
    yield made
    made.close()
