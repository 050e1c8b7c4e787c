from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.open_round import OpenRound


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[OpenRound]:
    made = OpenRound(tmp_path / "aggregator")
    yield made
    made.close()
