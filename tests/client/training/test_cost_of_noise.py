"""The benchmark behind what the documents say exact noise costs: it runs, and finds that cost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.repository.places import ROOT


def measured(out: Path, *options: str) -> dict[str, Any]:
    """The last row of a section of the benchmark, whose numbers are small here."""
    command = [sys.executable, "benchmarks/training/training.py", *options, "--json", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600)
    rows: list[dict[str, Any]] = json.loads(out.read_text())
    return rows[-1]


def test_a_step_with_exact_noise_takes_at_most_three_times_as_long(tmp_path: Path) -> None:
    """Medians of steps that take turns, so that other tests on the machine slow both."""
    found = measured(tmp_path / "rows.json", "step", "--rounds", "5")
    assert 0 < found["exact / floating point"] < 3


def test_accuracy_is_measured_with_both_kinds_of_noise(tmp_path: Path) -> None:
    """One training each: how close they are on average is for the benchmark to say.

    Both learn (26 letters, so guessing is right in 4 of 100), and the owner's accounting, in
    replace-one, is the larger one.
    """
    found = measured(tmp_path / "rows.json", "accuracy", "--seeds", "1", "--noise")
    assert min(found["exact"], found["floating point"]) > 0.3
    assert found["epsilon, replace-one (RDP)"] > found["epsilon, add-remove (PLD)"] > 0
