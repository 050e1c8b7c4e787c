from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Place
from tests.support.shufflers import ShufflerPlace


@pytest.fixture
def shuffler(place: Place, tmp_path: Path) -> Iterator[ShufflerPlace]:
    """A shuffler's folder and database, enrolled at the aggregator."""
    made = ShufflerPlace(tmp_path / "shuffler", aggregator=place)
    yield made
    made.close()
