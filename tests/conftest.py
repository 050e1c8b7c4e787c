from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Files that take longest: they start Flower.
LONGEST = ("test_deployment", "test_federation")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """A file's tests run in one process, in order."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.split("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest starts first."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Any]:
    """An aggregator's folder and database; servers that still run on it end with the test."""
    # Most tests need no server, and importing one takes seconds.
    from tests.support.servers import Place

    made = Place(tmp_path / "aggregator")
    yield made
    made.close()
