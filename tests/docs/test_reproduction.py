"""The page of reproductions is what its script writes, and its results are what the code gives."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from confide.simulation.reproduce.all_targets import TARGETS
from confide.simulation.reproduce.results import Result, rounded
from confide.simulation.reproduce.target import RunOptions
from tests.support.repository.places import ROOT

RESULTS = ROOT / "benchmarks" / "reproduction"
# Of these every run gives the same rows, in a moment: they are computed again here.
FORMULAS = ("ldp-figure-3", "ldp-figure-5", "card-table-2")


def committed(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def test_the_page_is_what_the_script_writes(tmp_path: Path) -> None:
    """Write it again with `python docs/write_reproduction.py` after a result changes."""
    script = ROOT / "docs" / "write_reproduction.py"
    subprocess.run([sys.executable, str(script), str(tmp_path / "now.md")], check=True, timeout=120)
    assert (ROOT / "docs" / "reproduction.md").read_text() == (tmp_path / "now.md").read_text()


@pytest.mark.parametrize("name", FORMULAS)
def test_committed_rows_are_the_computed_ones(name: str) -> None:
    rows = [rounded(row) for row in TARGETS[name].rows(RunOptions(trials=1))]
    assert committed(name)["rows"] == json.loads(json.dumps(rows))


@pytest.mark.parametrize("name", sorted(path.stem for path in RESULTS.glob("*.json")))
def test_committed_answers_follow_from_their_rows(name: str) -> None:
    """What a result says of the paper's sentences and of differences is what its target says."""
    result = committed(name)
    made = Result(
        target=TARGETS[name],
        command=result["command"],
        trials=result["trials"],
        seconds=result["processor_seconds"],
        rows=result["rows"],
    ).as_json()
    for answer, again in zip(result["answers"], made["answers"], strict=True):
        assert (answer["says"], answer["agrees"]) == (again["says"], again["agrees"])
    assert result["differences"] == made["differences"]
    assert result["command"].startswith(f"confide reproduce {name} --trials {result['trials']}")


def test_every_quick_target_has_a_result() -> None:
    """What needs no data is on the page."""
    wanted = {name for name, target in TARGETS.items() if target.quick}
    assert wanted <= {path.stem for path in RESULTS.glob("*.json")}
