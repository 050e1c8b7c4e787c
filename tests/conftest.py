import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Tests start hundreds of processes. Each module is compiled once, even if the environment asks
# Python to write no bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tests run in several processes already, so that threads of numeric libraries, here and in the
# processes that tests start, would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Files that take longest, longest first: they start Flower or many servers, or count failures.
LONGEST = (
    "test_deployment",
    "test_coverage",
    "test_federation",
    "test_durability",
    "test_failing_federations",
    "test_tutorials",
    "test_hostile_input",
    "test_runs",
    "test_advise",
    "test_terminal",
    "test_floor",
    "test_own_data",
    "test_chain_federation",
    "test_evaluate_central",
    "test_evaluate",
    "test_bits_trivial",
    "test_long_trainings",
    "test_honest_cards",
    "test_chain",
    "test_chain_networks",
    "test_own_training",
    "test_floods",
    "test_hostile_models",
    "test_full_data_campaign",
    "test_sums",
    "test_number_federation",
    "test_number_chain",
    "test_own_networks",
    "test_scoring",
    "test_card_lies",
    "test_training",
    "test_page",
    "test_page_process",
    "test_server",
    "test_resuming",
    "test_hostile",
    "test_signing_key",
)


# Files of long tests that share nothing, so that any process may take any of them.
APART = ("test_coverage.py",)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """A file's tests run in one process, in order, but for those that share nothing."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return nodeid if file.endswith(APART) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest starts first, so that no process is left with it when others are done."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Any]:
    """An aggregator's folder and database; servers that still run on it end with the test."""
    # Most tests need no server, and importing one takes seconds.
    from tests.support.servers.servers import Place

    made = Place(tmp_path / "aggregator")
    yield made
    made.close()
