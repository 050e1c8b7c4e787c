"""`confide reproduce` on the path that users take, and trials that are found again."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from confide.__main__ import main
from confide.protocol.errors import BadInput
from confide.simulation.reproduce.all_targets import TARGETS, find
from confide.simulation.reproduce.kept_trials import KeptTrials
from tests.support.programs.commands import run_main
from tests.support.programs.published_files import write_medmnist


def test_the_list_has_every_name_and_what_it_needs() -> None:
    """And how long it takes."""
    done = run_main(main, "reproduce", "--list")
    assert done.returncode == 0
    for name, target in TARGETS.items():
        (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == [name]]
        assert target.takes in line
        assert not target.quick or "nothing" in line
    assert "tissuemnist.npz" in done.stdout


def test_every_item_of_the_papers_is_there() -> None:
    """The figures and tables that are promised, each by itself or as a stand-in."""
    numbers: dict[str, tuple[Any, ...]] = {
        "LDP Figure": (3, 4, 5, 6),
        "LDP Table": (1,),
        "CARD Table": (2,),
        "CARD Figure": (1,),
        "PPS Figure": (3, 5, 6),
        "DPCP Figure": (1, 2, 3, 7),
        "SCP Table": (2, "S7", "S8", "S9"),
        "SCP Figure": ("S1",),
    }
    wanted = {f"{kind} {number}" for kind, all_ in numbers.items() for number in all_}
    assert wanted <= {target.of for target in TARGETS.values() if not target.stands_in}
    for target in TARGETS.values():
        assert target.instead is None or TARGETS[target.instead].of == target.of
        assert target.quick or target.needs or target.trained


def test_a_target_is_shown_and_written(tmp_path: Path) -> None:
    """A table on the terminal, and the same rows as csv and json, with a picture."""
    done = run_main(main, "reproduce", "card-table-2", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert "agrees: yes; 27 of 36 / 18 of 36 / 9 of 36" in done.stdout
    written = json.loads((tmp_path / "r" / "card-table-2.json").read_text())
    with (tmp_path / "r" / "card-table-2.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["N_form"] for row in rows] == ["27", "18", "9"]
    assert [row["N_form"] for row in written["rows"]] == [27, 18, 9]
    assert written["command"] == "confide reproduce card-table-2 --trials 1"
    assert (tmp_path / "r" / "card-table-2.png").read_bytes()[:4] == b"\x89PNG"


def test_more_trials_are_asked_for(tmp_path: Path) -> None:
    """The result says how many there were."""
    arguments = ("reproduce", "dpcp-figure-7", "--out", tmp_path, "--trials")
    enough = []
    for trials in (5, 40):
        assert run_main(main, *arguments, str(trials)).returncode == 0
        written = json.loads((tmp_path / "dpcp-figure-7.json").read_text())
        assert written["trials"] == trials
        enough.append([row["enough here"] for row in written["rows"]])
    assert enough[0] != enough[1]


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("card-table-3", "card-table-2"), ("LDP Figure 33", "ldp-figure-3"), ("quik", "quick")],
)
def test_a_wrong_name_is_answered_by_the_nearest(wrong: str, nearest: str) -> None:
    done = run_main(main, "reproduce", wrong)
    assert done.returncode == 2
    assert f"the nearest name is {nearest}," in done.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """With what it should be and what stands in, before anything is made."""
    out = tmp_path / "out"
    for given in ((), ("--data", tmp_path)):
        done = run_main(main, "reproduce", "ldp-figure-6", "--out", out, *given)
        assert done.returncode == 2
        assert "tissuemnist.npz, TissueMNIST of MedMNIST" in done.stderr
        assert "ldp-figure-6-made-up stands in" in done.stderr
    assert not out.exists()
    assert run_main(main, "reproduce").returncode == 2


def test_a_file_of_the_user_is_read_and_its_trials_are_kept(tmp_path: Path) -> None:
    """The second run finds the first one's trials and gives the same rows without training."""
    write_medmnist(tmp_path / "tissuemnist.npz", k=8, each=40)
    arguments = ("reproduce", "ldp-figure-6", "--data", tmp_path, "--out", tmp_path / "o")
    first = run_main(main, *arguments, "--trials", "2")
    assert first.returncode == 0, first.stderr
    kept, result = (tmp_path / "o" / f"ldp-figure-6.{end}json" for end in ("trials.", ""))
    rows = json.loads(result.read_text())["rows"]
    marked = json.loads(kept.read_text())
    marked["trials"][0]["coverage"] = 0.123
    kept.write_text(json.dumps(marked))
    assert run_main(main, *arguments, "--trials", "2").returncode == 0
    again = json.loads(result.read_text())["rows"]
    assert (again[0]["coverage"], again[1:]) == (0.123, rows[1:])
    write_medmnist(tmp_path / "tissuemnist.npz", k=8, each=41)
    refused = run_main(main, *arguments, "--trials", "2")
    assert refused.returncode == 2
    assert "holds trials of" in refused.stderr
    assert json.loads(result.read_text())["rows"] == again


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    """No trial is run twice, none is lost, and trials of all cells alternate."""
    path = tmp_path / "trials.json"
    done: list[tuple[int, int]] = []

    def work(place: int, number: int) -> Iterator[dict[str, Any]]:
        yield {"value": 10 * place + number}
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((number, place))

    cells: list[list[Any]] = [["a", 0.1], ["b", 0.2]]
    with pytest.raises(KeyboardInterrupt):
        KeptTrials(path).finish(cells, trials=3, work=work)
    assert done == [(0, 0), (0, 1), (1, 0)]
    done.append((-1, -1))
    kept = KeptTrials(path)
    kept.finish(cells, trials=3, work=work)
    assert done[4:] == [(1, 1), (2, 0), (2, 1)]
    assert [row["value"] for row in kept.of(["b", 0.2], trials=2)] == [10, 11]


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"about": {}, "trials": [{"cell": []}]}'])
def test_another_file_is_no_file_of_trials(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(BadInput, match=r"t\.json"):
        KeptTrials(tmp_path / "t.json")


def test_quick_means_no_file_and_no_training() -> None:
    """These are the ones that must take less than two minutes together."""
    assert {one.name for one in find("quick")} == {
        name for name, one in TARGETS.items() if not one.needs and not one.trained
    }
    assert len(find("quick")) >= 15
