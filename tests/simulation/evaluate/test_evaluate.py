import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from confide.protocol.errors import BadInput
from confide.protocol.methods.owner_terms import PART_VARIANTS
from confide.protocol.methods.registry import local_variants
from confide.protocol.scores.registry import find_score
from confide.simulation.data.population import Predictions, embedded, predicted
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.repeated import run_trials
from tests.support.programs.processes import read_terminal, started, terminal
from tests.support.programs.simulation import in_process, simulation
from tests.support.repository.places import ROOT
from tests.support.truth.known import label_population


@pytest.mark.parametrize(
    ("method", "variant"),
    [
        (method, variant)
        for method, names in local_variants().items()
        for variant in (*names, "non-private")
        # The file has no column of owners (see test_evaluate_owners) or groups.
        if variant not in PART_VARIANTS
    ],
)
def test_json_holds_what_was_asked_and_what_came_out(
    records: Path, method: str, variant: str
) -> None:
    """Arguments resolved, every trial with its measures, means and deviations; only JSON on
    standard output."""
    run = in_process(
        "--data",
        records,
        "--method",
        method,
        "--variant",
        variant,
        "--epsilon",
        "4",
        "--n",
        "2000",
        "--trials",
        "3",
        "--seed",
        "5",
        "--json",
        "-",
    )
    assert run.exit_code == 0, run.stderr
    result = json.loads(run.stdout)
    given = result["arguments"]
    assert (given["n"], given["trials"], given["records"], given["labels"]) == (2_000, 3, 3_000, 5)
    assert given["randomness"] == "seeded (simulation only)"
    if variant == "non-private":
        assert (given["channel"], given["exact_epsilon"], given["kind"]) == (None, None, "marginal")
    else:
        assert 3.999 <= given["exact_epsilon"] <= 4
        assert given["channel"] == ("bit" if method == "bits" else "k-rr")
        assert (given["Delta"] is not None) == variant.startswith("published")
    assert len(result["trials"]) == 3
    for trial in result["trials"]:
        assert 0 <= trial["threshold"] <= 1
        assert 0.8 <= trial["coverage"] <= 1
        assert 0 < trial["mean_size"] <= 5
        assert trial["trivial"] == (trial["threshold"] == 1)
        assert trial["certified_level"] <= 0.9
    coverage = [trial["coverage"] for trial in result["trials"]]
    assert result["mean"]["coverage"] == pytest.approx(np.mean(coverage))
    assert result["std"]["coverage"] == pytest.approx(np.std(coverage))


@pytest.mark.parametrize(
    ("method", "why"), [("bits", "too few reports"), ("central", "infeasible: rank")]
)
def test_trivial_campaigns_say_why(method: str, why: str, records: Path) -> None:
    """Below the table stands how many campaigns certified nothing, and the most frequent reason."""
    given = ("--data", records, "--method", method, "--n", "10", "--trials", "2", "--seed", "1")
    shown = " ".join(in_process(*given, "--epsilon", "0.5").stdout.split())
    assert f"trivial in 2 of 2 campaigns; {why}" in shown


def test_a_promise_for_every_label_shows_the_coverage_of_each(records: Path) -> None:
    """Below the table; and its options reach the campaign: below the floor a threshold is 1, which
    predicts the label always."""
    given = ("--data", records, "--variant", "class-conditional", "--epsilon", "6")
    more = ("--trials", "2", "--seed", "1")
    shown = in_process(*given, *more).stdout
    assert "labels class-conditional: each label" in shown
    assert "covered least 0.9" in shown
    rows = [line.split() for line in shown.splitlines() if line.strip()[:1].isdigit()]
    assert sorted(row[0] for row in rows) == ["0", "1", "2", "3", "4"]
    assert all(0.88 <= float(row[3]) <= 1 for row in rows)
    found = [
        json.loads(in_process(*given, *more, *options, "--json", "-").stdout)["trials"][0]
        for options in ((), ("--joint",), ("--class-floor", "100000"))
    ]
    plain, joint, floored = (trial["mean_size"] for trial in found)
    assert plain < joint < floored == 5
    assert [trial["least_class_coverage"] for trial in found][2] == 1


@pytest.mark.parametrize(
    "asked",
    [
        ("labels", "--variant", "per-group"),
        ("bits", "--variant", "for-every-group", "--group-floor", "50"),
        ("central", "--by", "group"),
    ],
    ids="-".join,
)
def test_groups_of_a_file_are_calibrated_and_shown_one_by_one(
    records: Path, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    """By a column of the file, which is no feature; without the column, or with one that is not
    there, nothing is run."""
    with np.load(records) as archive:
        arrays = {name: archive[name] for name in archive}
    n = len(arrays["labels"])
    wards = np.random.default_rng(3).choice(np.array(["7", "north", "south"]), n, p=(0.2, 0.4, 0.4))
    path = tmp_path / "grouped.npz"
    np.savez(path, ward=wards, **arrays)
    given: tuple[str | Path, ...] = ("--data", path, "--method", *asked, "--epsilon", "6")
    given += ("--trials", "2", "--seed", "1")
    shown = in_process(*given, "--group-column", "ward")
    assert shown.exit_code == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines() if "±" in line][1:]
    assert sorted(row[0] for row in rows) == ["7", "north", "south"]
    assert "each group" in shown.stdout
    assert all(0.85 <= float(row[3]) <= 1 for row in rows)
    missing = in_process(*given)
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "group" in missing.stderr
    absent = in_process(*given, "--group-column", "clinic")
    assert absent.exit_code == 2
    assert "missing: clinic" in absent.stderr


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_are_read_like_arrays(suffix: str, records: Path, tmp_path: Path) -> None:
    """The same records in another file give the same trials."""
    with np.load(records) as archive:
        columns = {f"p{i}": archive["probs"][:, i] for i in range(5)} | {"label": archive["labels"]}
    table, path = pyarrow.table(columns), tmp_path / f"records.{suffix}"
    if suffix == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    given = ("--trials", "1", "--seed", "1", "--json", "-")
    found = [json.loads(in_process("--data", one, *given).stdout) for one in (records, path)]
    assert found[0]["trials"] == found[1]["trials"]


def test_a_seed_repeats_and_no_seed_does_not(records: Path) -> None:
    """The same seed gives the same file, byte for byte; without one every run differs."""
    asked: list[str | Path] = ["--data", records, "--trials", "2", "--json", "-"]
    # Another process has other hashes.
    there = simulation("evaluate", *asked, "--seed", "1")
    assert there.returncode == 0, there.stderr
    assert there.stdout == in_process(*asked, "--seed", "1").stdout
    free = [in_process(*asked).stdout for _ in range(2)]
    assert free[0] != free[1]
    assert json.loads(free[0])["arguments"]["randomness"] == "operating system"


def test_the_embedded_data_set_is_the_default(tmp_path: Path) -> None:
    """Without --data the embedded records serve; the table goes to the terminal, the JSON to the
    file."""
    out = tmp_path / "result.json"
    run = simulation(
        "evaluate", "--method", "bits", "--epsilon", "4", "--trials", "2", "--json", out
    )
    assert run.returncode == 0, run.stderr
    assert "letter (embedded)" in run.stdout
    assert json.loads(out.read_text())["arguments"]["records"] == 16_000
    assert list(tmp_path.iterdir()) == [out]


def test_variants_are_shown_side_by_side() -> None:
    """One row a variant, in one table that says what its columns mean."""
    run = simulation("variants", "--trials", "2")
    assert run.returncode == 0, run.stderr
    rows = (
        "non-private",
        "labels published-star",
        "labels certified",
        "bits published-star",
        "bits certified",
        "bits one-shot",
    )
    assert all(row in run.stdout for row in rows)
    assert "promised: guaranteed coverage" in run.stdout


def test_ctrl_c_keeps_the_trials_that_finished(tmp_path: Path, records: Path) -> None:
    """Interrupted in the middle, the finished trials are written and the exit code says so."""
    out = tmp_path / "result.json"
    command = [
        sys.executable,
        "-m",
        "confide",
        "evaluate",
        "--data",
        str(records),
        "--trials",
        "100000",
        "--json",
        str(out),
    ]
    with (
        terminal(80) as (ours, theirs),
        started(
            command,
            cwd=ROOT,
            env=os.environ | {"TERM": "xterm"},
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        ) as process,
    ):
        os.close(theirs)
        shown = b""
        # The bar tells how long it will take as soon as trials have finished.
        while not re.search(rb"\d:\d\d:\d\d", shown):
            part = read_terminal(ours)
            assert part, shown
            shown += part
        process.send_signal(signal.SIGINT)
        errors = b"".join(iter(partial(read_terminal, ours), b"")).decode()
        assert process.wait(timeout=60) == 130, errors
    assert "are kept" in errors
    assert 0 < len(json.loads(out.read_text())["trials"]) < 100_000


def test_calibration_and_test_records_are_disjoint() -> None:
    """Records marked by their score: none of those calibrated on is tested on, and all are used."""
    n = 400
    first = np.linspace(0.6, 0.9, n, dtype=np.float32)
    probs = np.stack([first, 1 - first], axis=1)
    population = Predictions("marked", probs, np.zeros(n, dtype=np.int64))
    rows = list(Calibrated(variant="non-private", n=100, trials=5, seed=1).run(population))
    for row in rows:
        # The threshold is the rank-91 score of the 100 calibration records: exactly 90 of them lie
        # below it.
        below = np.count_nonzero(1 - probs[:, 0] <= row["threshold"])
        assert row["coverage"] == pytest.approx((below - 91) / 300)


def test_a_result_in_code_says_it_ran_to_the_end() -> None:
    """`evaluate` reports progress once a trial."""
    probs, labels = label_population(500, 4, np.random.default_rng(1), ties=True)
    ticks: list[int] = []
    _, complete = run_trials(
        Predictions("made", probs, labels),
        Calibrated(n=200, trials=3, seed=1, epsilon=8.0),
        progress=lambda: ticks.append(1),
    )
    assert complete
    assert len(ticks) == 3


def test_records_are_checked_when_they_are_read(tmp_path: Path) -> None:
    """Labels without a column are refused; the embedded records fit, and are predicted better than
    by chance."""
    np.savez(tmp_path / "bad.npz", probs=np.full((2, 2), 0.5), labels=[0, 2])
    with pytest.raises(BadInput, match=r"bad\.npz: labels run from 0 to 2"):
        predicted(tmp_path / "bad.npz", find_score("hps"))
    with pytest.raises(BadInput, match="does not exist"):
        predicted(tmp_path / "none.npz", find_score("hps"))
    letters = embedded()
    assert (len(letters), letters.results.shape[1]) == (16_000, 26)
    assert np.mean(letters.results.argmax(axis=1) == letters.truth) > 0.65
