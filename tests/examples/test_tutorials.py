"""Tutorials run, and the page shows their code and what they print."""

import re
import socket
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.programs.examples import EXAMPLES, number, run
from tests.support.repository.places import ROOT

PAGE = ROOT / "docs" / "tutorials.md"
BLOCK = re.compile(
    r"<!-- example (\w+) -->\n```python\n(.*?)\n```\n\nprints\n\n```text\n(.*?)\n```\n<!-- end -->",
    re.DOTALL,
)
SHOWN = {name: (code, output) for name, code, output in BLOCK.findall(PAGE.read_text())}


def words(text: str) -> list[str]:
    """Lines without numbers, keys and spaces, which other machines and runs have otherwise."""
    plain = re.sub(r"\b[0-9a-f]{16,}\b|(?<![\w-])[\w-]{43}(?![\w-])", "KEY", text)
    return [" ".join(re.sub(r"-?[\d.,]*\d", "#", line).split()) for line in plain.splitlines()]


def numbers(text: str) -> list[float]:
    """The numbers that `words` leaves out, but those of keys."""
    plain = re.sub(r"\b[0-9a-f]{16,}\b", "", text)
    return [float(one.replace(",", "")) for one in re.findall(r"\d[\d,]*\.?\d*", plain)]


@pytest.fixture(scope="module")
def scripts() -> ModuleType:
    """The benchmark of short scripts."""
    return import_module("benchmarks.speed.short_scripts")


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
def test_a_dozen_lines_are_enough(name: str, most: int, scripts: ModuleType, folder: Path) -> None:
    """The lines are counted as the page says, the promise is met, and the words are the page's."""
    path = EXAMPLES / f"{name}.py"
    lines = scripts.code_lines(path)
    assert lines <= most
    assert f"](../examples/{path.name}) | {lines} |" in PAGE.read_text()
    # So are those of the other packages.
    for peer in scripts.SCRIPTS.values():
        shown = f"](../{peer.relative_to(ROOT)}) | {scripts.code_lines(peer)} |"
        assert shown in PAGE.read_text(), peer
    scripts.write_letters(folder / "letters.npz")
    printed = run(path.name, folder=folder)
    assert number(printed, "coverage") > 0.88
    # A search may end without a threshold, and then says why.
    said = re.sub("; trivial: .*", "", printed).split("record 0")[0]
    assert words(said) == words(SHOWN[name][1].split("record 0")[0])
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
    """Over a real server; what is typed and answered is what the page shows."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    printed = run("tutorial_owner.py", str(port), folder=folder)
    wanted = SHOWN["tutorial_owner"][1]
    # What the search finds may be another threshold in another run, or none.
    asked, shown = (
        words(text.partition("$ confide-client card ")[0]) for text in (printed, wanted)
    )
    assert asked == shown
    typed, shown = (
        [line for line in words(text) if line.startswith("$")] for text in (printed, wanted)
    )
    assert typed == shown
    assert "holds: " in printed
    assert "they cover 0." in printed or "they cover 1." in printed


def test_the_federation_of_a_file_ends_with_sets(folder: Path) -> None:
    """Real nodes of Flower, one a hospital; the card they made predicts a new file."""
    printed = run("tutorial_federation.py", folder=folder)
    wanted = SHOWN["tutorial_federation"][1].splitlines()
    # Warnings go to the other stream, which the page shows too.
    shown = [line for line in wanted if not line.startswith(("WARNING: ", "ignored: "))]
    assert words(printed) == words("\n".join(shown))
    # A seed repeats every number but for the last digits of another machine's arithmetic.
    head = "labels in the mean"
    found, told = (numbers(text.partition(head)[0]) for text in (printed, "\n".join(shown)))
    assert len(told) > 60
    assert found == pytest.approx(told, rel=0.01, abs=0.01)
    assert len((folder / "sets.csv").read_text().splitlines()) == 501
