"""The packages, and the source files that tests read."""

from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

# What each package may import.
PACKAGES = {
    "protocol": {"protocol"},
    "client": {"protocol", "client"},
    "aggregator": {"protocol", "aggregator"},
    "shuffler": {"protocol", "client", "aggregator", "shuffler"},
    "simulation": {"protocol", "client", "aggregator", "simulation"},
}


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        # The packages that benchmarks install beside them lie in a hidden folder.
        for path in (ROOT / folder).rglob("*.py"):
            if not any(part.startswith(".") for part in path.relative_to(ROOT).parts):
                yield path
