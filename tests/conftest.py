from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# These look for processes of Flower on the machine, and so must not run beside each other.
FLOWER = ("test_federation", "test_deployment")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """A file's tests run in one process, in order; those that start Flower one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::")[0]
        return "flower" if PurePath(path).stem in FLOWER else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits longest starts first."""
    items.sort(key=lambda item: item.path.stem not in FLOWER)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Any]:
    """An aggregator's folder and database; servers that still run on it end with the test."""
    # Most tests need no server, and importing one takes seconds.
    from tests.support.servers import Place

    made = Place(tmp_path / "aggregator")
    yield made
    made.close()
