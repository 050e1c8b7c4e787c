import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from confide.protocol.errors import BadInput
from confide.protocol.methods.registry import local_variants
from confide.simulation.data.population import Population, embedded, from_npz
from confide.simulation.evaluate.local import Local, array_variants
from confide.simulation.evaluate.trials import run_trials
from tests.support.known import label_population
from tests.support.places import ROOT
from tests.support.processes import read_terminal, started, terminal
from tests.support.simulation import in_process, simulation


@pytest.mark.parametrize(
    ("method", "variant"),
    [(m, v) for m in local_variants() for v in (*array_variants(m), "non-private")],
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


def test_trivial_campaigns_say_why(records: Path) -> None:
    """Below the table stands how many campaigns certified nothing, and the most frequent reason."""
    given = ("--data", records, "--method", "bits", "--n", "10", "--trials", "2", "--seed", "1")
    shown = " ".join(in_process(*given, "--epsilon", "0.5").stdout.split())
    assert "trivial in 2 of 2 campaigns; no threshold passed" in shown


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


def test_compare_shows_all_variants() -> None:
    """One row a method, in one table that says what its columns mean."""
    run = simulation("compare", "--trials", "2")
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
    probs = np.stack([np.linspace(0.6, 0.9, n), 1 - np.linspace(0.6, 0.9, n)], axis=1)
    population = Population("marked", probs, np.zeros(n, dtype=np.int64))
    rows = list(Local(variant="non-private", n=100, trials=5, seed=1, alpha=0.1).run(population))
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
        Population("made", probs, labels),
        Local(n=200, trials=3, seed=1, epsilon=8.0),
        progress=lambda: ticks.append(1),
    )
    assert complete
    assert len(ticks) == 3


def test_populations_check_themselves(tmp_path: Path) -> None:
    """A population cannot be made from what does not fit; the embedded one fits and predicts better
    than chance."""
    with pytest.raises(BadInput, match="labels have shape"):
        Population("bad", np.full((2, 2), 0.5), np.zeros(3, dtype=np.int64))
    with pytest.raises(BadInput, match="does not exist"):
        from_npz(tmp_path / "none.npz")
    letters = embedded()
    assert (len(letters), letters.probs.shape[1]) == (16_000, 26)
    assert np.mean(letters.probs.argmax(axis=1) == letters.labels) > 0.65
