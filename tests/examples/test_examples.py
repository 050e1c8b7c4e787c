"""Every example runs in an empty folder and prints what its docstring promises."""

import re
from pathlib import Path

import pytest

from tests.support.programs.examples import EXAMPLES, number, run


def test_arrays_are_calibrated(tmp_path: Path) -> None:
    """The measured coverage reaches the promised one, with sets of a few of the 26 labels."""
    printed = run("calibrate_arrays.py", folder=tmp_path)
    promised = number(printed, "promised coverage:")
    assert promised == 0.9
    assert number(printed, "test coverage:") >= promised - 0.01
    assert 1 < number(printed, "mean set size:") < 8
    assert number(printed, "exact epsilon:") <= 2


def test_an_own_score_is_compared(tmp_path: Path) -> None:
    """Both scores cover; the registered one makes sets of about the same size."""
    printed = run("own_score.py", folder=tmp_path)
    for name in ("hps", "ratio"):
        (line,) = [line for line in printed.splitlines() if line.startswith(f"{name}:")]
        assert number(line, "coverage") >= 0.89
        assert 1 < number(line, "size") < 8


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a campaign of owners, and what it printed."""
    folder = tmp_path_factory.mktemp("campaign")
    return folder, run("campaign_of_owners.py", folder=folder)


def test_a_campaign_ends_in_a_card_that_verifies(campaign: tuple[Path, str]) -> None:
    """Owners answer, the card is written, and the example that verifies cards accepts it."""
    folder, printed = campaign
    assert number(printed, "threshold") < 1
    assert "owners 3" in printed
    assert "every clause holds: True" in printed
    shown = run("verify_card.py", "card.json", folder=folder)
    assert "decision: feasible" in shown
    assert number(shown, "threshold:") == number(printed, "threshold")
    signer = next(line for line in shown.splitlines() if line.startswith("signed by:")).split()[-1]
    assert run("verify_card.py", "card.json", signer, folder=folder) == shown


def test_a_changed_card_is_refused(campaign: tuple[Path, str], tmp_path: Path) -> None:
    """A threshold changed in the file is found, and so is another signer."""
    card = (campaign[0] / "card.json").read_text()
    path = tmp_path / "card.json"
    path.write_text(card)
    found = run("verify_card.py", "card.json", "00" * 32, folder=tmp_path, fails=True)
    assert [line.split(":")[0] for line in found.splitlines()] == ["FAILED signer"]
    path.write_text(re.sub(r'"threshold": [\d.]+', '"threshold": 0.5', card))
    found = run("verify_card.py", "card.json", folder=tmp_path, fails=True)
    assert "FAILED signature" in found
    assert "threshold: " not in found.replace("/threshold: ", "")


def test_examples_are_short_and_all_of_them_run_here() -> None:
    """An example fits on a screen or two, says what it shows, and has a test."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for path in EXAMPLES.glob("*.py"):
        source = path.read_text()
        assert len(source.splitlines()) <= 70, path
        assert source.startswith('"""'), path
        assert f'"{path.name}"' in tests or f'"{path.stem}"' in tests, path
