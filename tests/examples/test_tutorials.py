"""Tutorials run, and the page shows their code and what they print."""

import re
import socket
import sys
from pathlib import Path

import pytest

from tests.examples.test_examples import EXAMPLES, number, run
from tests.support.places import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from short_scripts import code_lines, write_letters

PAGE = ROOT / "docs" / "tutorials.md"
BLOCK = re.compile(
    r"<!-- example (\w+) -->\n```python\n(.*?)\n```\n\nprints\n\n```text\n(.*?)\n```\n<!-- end -->",
    re.DOTALL,
)
SHOWN = {name: (code, output) for name, code, output in BLOCK.findall(PAGE.read_text())}


def words(text: str) -> list[str]:
    """Lines without numbers, keys and spaces, which other machines and runs have otherwise."""
    plain = re.sub(r"\b[0-9a-f]{16,}\b|\b[\w-]{43}\b", "KEY", text)
    return [" ".join(re.sub(r"-?[\d.,]*\d", "#", line).split()) for line in plain.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def test_the_page_shows_every_short_example_and_tutorial() -> None:
    """With the code as it is."""
    named = {path.stem for kind in ("short", "tutorial") for path in EXAMPLES.glob(f"{kind}_*.py")}
    assert set(SHOWN) == named
    for name, (code, _) in SHOWN.items():
        assert code == (EXAMPLES / f"{name}.py").read_text().rstrip()


@pytest.mark.parametrize(("name", "most"), [("short_sets", 12), ("short_card", 15)])
def test_a_dozen_lines_are_enough(name: str, most: int, folder: Path) -> None:
    """The lines are counted as the page says, and the promise is met."""
    path = EXAMPLES / f"{name}.py"
    assert code_lines(path) <= most
    assert f"({path.relative_to(ROOT)}) | {code_lines(path)} |" in PAGE.read_text()
    write_letters(folder / "letters.npz")
    assert number(run(path.name, folder=folder), "coverage") > 0.88
    assert (folder / ("sizes.png" if name == "short_sets" else "card.json")).exists()


def test_the_classifier_is_calibrated_and_predicts_with_tensors(folder: Path) -> None:
    """Up to the first explanation the output has the words of the page."""
    printed = run("tutorial_classifier.py", folder=folder)
    wanted = SHOWN["tutorial_classifier"][1]
    assert words(printed.split("record")[0]) == words(wanted.split("record")[0])
    assert number(printed, "coverage") > 0.88
    assert (folder / "classes.png").exists()


def test_the_intervals_are_those_of_the_page(folder: Path) -> None:
    """A seed repeats every number."""
    assert run("tutorial_regression.py", folder=folder).rstrip() == SHOWN["tutorial_regression"][1]
    assert (folder / "intervals.png").exists()


def test_the_owner_ends_with_sets(folder: Path) -> None:
    """Over a real server; what is typed is what the page shows."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    printed = run("tutorial_owner.py", str(port), folder=folder)
    wanted = SHOWN["tutorial_owner"][1]
    typed, shown = (
        [line for line in words(text) if line.startswith("$")] for text in (printed, wanted)
    )
    assert typed == shown
    assert "holds: " in printed
    assert "they cover 0." in printed or "they cover 1." in printed


def test_the_federation_of_a_file_ends_with_sets(folder: Path) -> None:
    """Real nodes of Flower, one a hospital; the card they made predicts a new file."""
    printed = run("tutorial_federation.py", folder=folder)
    wanted = [line for line in SHOWN["tutorial_federation"][1].splitlines() if line[:1] != " "]
    for line in words("\n".join(wanted)):
        assert line in words(printed) or line.startswith("WARNING"), line
    assert len((folder / "sets.csv").read_text().splitlines()) == 501
