from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.guarded import Guarded
from tests.support.servers.open_round import OpenRound
from tests.support.servers.servers import Place


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[OpenRound]:
    made = OpenRound(tmp_path / "aggregator")
    yield made
    made.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    place = Place(tmp_path / "aggregator")
    made = Guarded(place)
    yield made
    made.stop()
    place.close()
