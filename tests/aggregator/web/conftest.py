from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers.browser import browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running
