"""A real Flower simulation on a csv file with targets of three owners."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.support.places import ROOT
from tests.support.regressions import SCORE, coverage, numbers, write_numbers

CAMPAIGNS = {"bits:certified": 0.9, "central:trusted": 0.87, "central:owner-noised": 0.87}


def test_targets_of_three_owners_end_in_intervals(tmp_path: Path) -> None:
    """Bits and counts over Flower give cards that verify, in the unit of targets, and coverage and
    width by owner.

    Bits are promised but with probability 1e-4; marginal coverage of 4,500 records is below 0.87
    with a probability below 1e-10.
    """
    held = numbers(6_000, 21)
    owner = np.repeat(["north", "south", "west"], [3_000, 2_000, 1_000])
    data = write_numbers(tmp_path / "mine.csv", held, owner=owner)
    given = ["--data", data, "--owner-column", "owner", "--score", SCORE, "--epsilon", 6]
    given += ["--campaigns", " ".join(CAMPAIGNS), "--failure-probability", 1e-4]
    command = [sys.executable, "-m", "confide", "federation", *map(str, given)]
    done = subprocess.run(
        [*command, "--out", tmp_path / "out"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "3 nodes, 4,500 records dealt, mine.csv" in done.stdout
    assert "test coverage  mean width" in done.stdout
    assert done.stdout.count(": verified, ") == 3
    assert "predicted with" in done.stdout
    for name, least in CAMPAIGNS.items():
        row = json.loads((tmp_path / "out" / f"{name.replace(':', '-')}.json").read_text())
        assert coverage(10 * row["threshold"]) >= least
        assert [one["owner"] for one in row["owners"]] == ["north", "south", "west"]
        assert np.allclose([one["mean_width"] for one in row["owners"]], 20 * row["threshold"])
        page = (tmp_path / "out" / f"{name.replace(':', '-')}.card.html").read_text()
        assert f"the prediction plus or minus {10 * row['threshold']:.4g}" in page
