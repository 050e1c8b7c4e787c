"""A federation from an installed wheel repeats one of the checkout."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from confide.protocol.cards.card import read_card
from tests.support.federations import command
from tests.support.places import ROOT
from tests.support.processes import started


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from a copy of what it is built from, and unpacked as an installer
    does."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("confide", "protocol", "client", "aggregator", "simulation"):
        shutil.copytree(
            ROOT / name,
            folder / "source" / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    build = "import setuptools.build_meta as b; b.build_wheel('..')"
    subprocess.run(
        [sys.executable, "-c", build], cwd=folder / "source", capture_output=True, check=True
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_an_installed_federation_repeats_one_of_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    """From a wheel, in an empty folder, into a folder that is not there: the plans, thresholds,
    counts and cards of the same seed in the checkout, with owners that stay away; only the moments
    of the cards, and so their signatures, differ."""
    more = [
        "--nodes",
        "4",
        "--records",
        "2000",
        "--campaigns",
        "bits:certified central:trusted",
        "--sizes",
        "1 2 3",
        "--dropout",
        "0.3",
    ]
    (tmp_path / "empty").mkdir()
    outs = {ROOT: tmp_path / "out", tmp_path / "empty": tmp_path / "new" / "out"}
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                started(
                    command(out, *more),
                    cwd=place,
                    env=os.environ | {"PYTHONPATH": str(ROOT if place is ROOT else installed)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
            )
            for place, out in outs.items()
        ]
        for process in both:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
    assert not any((tmp_path / "empty").iterdir())
    for name in ("bits-certified", "central-trusted"):
        one, other = (json.loads((out / f"{name}.json").read_text()) for out in outs.values())
        assert one == other
        # Some owners stay away, and who does is decided by the seed.
        assert sum(one["received"].values()) % 4 > 0
        cards = [read_card(out / f"{name}.card.json").content() for out in outs.values()]
        for card in cards:
            del card["provenance"]["issued"]
        assert cards[0] == cards[1]
