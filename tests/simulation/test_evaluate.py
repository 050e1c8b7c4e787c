import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from confide.__main__ import main
from confide.aggregator.quantiles.registry import MECHANISMS
from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.errors import BadInput
from confide.protocol.plan import LOCAL_VARIANTS
from confide.protocol.simulated import SIMULATION_PUBLIC
from confide.simulation.cli import app
from confide.simulation.data.population import Population, Predictions, embedded, from_npz, lessons
from confide.simulation.data.synthetic import Clusters, line
from confide.simulation.evaluate.central import Central
from confide.simulation.evaluate.local import Setting
from confide.simulation.evaluate.trials import evaluate
from tests.support.commands import run_main
from tests.support.known import label_population
from tests.support.places import ROOT
from tests.support.processes import read_terminal, started, terminal


def simulation(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "confide", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An npz of 3,000 records over 5 labels, float32."""
    probs, labels = label_population(3_000, 5, np.random.default_rng(0), ties=False)
    path = tmp_path_factory.mktemp("data") / "records.npz"
    np.savez(path, probs=probs.astype(np.float32), labels=labels)
    return path


@pytest.mark.parametrize(
    ("method", "variant"),
    [(m, v) for m, names in LOCAL_VARIANTS.items() for v in (*names, "non-private")],
)
def test_json_holds_what_was_asked_and_what_came_out(
    records: Path, method: str, variant: str
) -> None:
    """Arguments resolved, every trial with its measures, means and deviations; only JSON on
    standard output."""
    run = simulation(
        "evaluate",
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
    assert run.returncode == 0, run.stderr
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


def test_a_seed_repeats_and_no_seed_does_not(records: Path) -> None:
    """The same seed gives the same file, byte for byte; without one every run differs."""
    same = [
        simulation(
            "evaluate", "--data", records, "--trials", "2", "--seed", "1", "--json", "-"
        ).stdout
        for _ in range(2)
    ]
    assert same[0] == same[1]
    free = [
        simulation("evaluate", "--data", records, "--trials", "2", "--json", "-").stdout
        for _ in range(2)
    ]
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


def broken_files(folder: Path, records: Path) -> dict[str, Path]:
    with np.load(records) as archive:
        probs, labels = archive["probs"], archive["labels"]
    made: dict[str, dict[str, Any]] = {
        "sum": {"probs": probs * 1.1, "labels": labels},
        "nan": {"probs": np.where(np.arange(5) == 2, np.nan, probs), "labels": labels},
        "label": {"probs": probs, "labels": labels + 1},
        "shape": {"probs": probs, "labels": labels[:-1]},
        "array": {"probs": probs},
        "object": {"probs": probs, "labels": np.array([{}] * len(labels))},
    }
    for name, arrays in made.items():
        np.savez(folder / f"{name}.npz", **arrays)
    (folder / "cut.npz").write_bytes(records.read_bytes()[:2_000])
    (folder / "text.npz").write_text("not an archive")
    np.save(folder / "plain.npy", probs)
    os.rename(folder / "plain.npy", folder / "plain.npz")
    names = [*made, "cut", "text", "plain"]
    return {name: folder / f"{name}.npz" for name in names} | {
        "missing": folder / "missing.npz",
        "folder": folder,
    }


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sum", "sum to"),
        ("nan", "nan"),
        ("label", "labels run from"),
        ("shape", "labels have shape"),
        ("array", "missing"),
        ("object", "cannot be read"),
        ("cut", "cannot be read"),
        ("text", "cannot be read"),
        ("plain", "cannot be read"),
        ("missing", "does not exist"),
        ("folder", "cannot be read"),
    ],
)
def test_unusable_files_get_one_clear_line(
    name: str, says: str, records: Path, tmp_path: Path
) -> None:
    """Exit code 2, one line on standard error that names the file and what is wrong, no traceback,
    nothing written."""
    path = broken_files(tmp_path, records)[name]
    out = tmp_path / "result.json"
    # numpy leaves a file that is cut short open until its process ends.
    command = simulation if name == "cut" else partial(run_main, main)
    run = command("evaluate", "--data", path, "--json", out)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert str(path) in run.stderr
    assert says in run.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--epsilon", "0"], "epsilon is 0.0"),
        (["--epsilon", "-1"], "epsilon is -1.0"),
        (["--epsilon", "inf"], "epsilon is inf"),
        (["--alpha", "1"], "alpha is 1.0"),
        (["--alpha", "0"], "alpha is 0.0"),
        (["--failure-probability", "1.5"], "failure probability is 1.5"),
        (["--delta", "0.1"], "delta is now failure-probability"),
        (["--n", "3000"], "accepted are 1 to 2999"),
        (["--n", "0"], "n is 0"),
        (["--trials", "0"], "trials is 0"),
        (["--max-corrupt", "-1"], "max_corrupt is -1"),
        (["--method", "votes"], "accepted: labels, bits"),
        (["--variant", "one-shot"], "accepted: certified, published, published-star, non-private"),
        (["--score", "apz"], "accepted: hps"),
        (["--channel", "bit"], "accepted: auto, k-rr, subset, unary"),
        (["--method", "bits", "--channel", "k-rr"], "accepted: auto, bit"),
        (["--variant", "published", "--channel", "subset"], "defined for k-rr"),
        (["--json", "/nonexistent/x.json", "--trials", "1"], "cannot write"),
    ],
)
def test_impossible_arguments_get_one_clear_line(
    arguments: list[str], says: str, records: Path
) -> None:
    """Exit code 2 and one line with what was found and what is accepted."""
    run = run_main(main, "evaluate", "--data", records, *arguments)
    assert run.returncode == 2, run.stdout
    assert run.stderr.count("\n") == 1
    assert says in run.stderr


def test_an_unknown_option_points_to_help() -> None:
    """A mistyped option is exit code 2 without a traceback."""
    run = simulation("evaluate", "--epsilom", "1")
    assert run.returncode == 2
    assert "--epsilom" in run.stderr
    assert "Traceback" not in run.stderr


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
    rows = list(Setting(variant="non-private", n=100, trials=5, seed=1, alpha=0.1).run(population))
    for row in rows:
        # The threshold is the rank-91 score of the 100 calibration records: exactly 90 of them lie
        # below it.
        below = np.count_nonzero(1 - probs[:, 0] <= row["threshold"])
        assert row["coverage"] == pytest.approx((below - 91) / 300)


def test_a_result_in_code_says_it_ran_to_the_end() -> None:
    """`evaluate` reports progress once a trial."""
    probs, labels = label_population(500, 4, np.random.default_rng(1), ties=True)
    ticks: list[int] = []
    _, complete = evaluate(
        Population("made", probs, labels),
        Setting(n=200, trials=3, seed=1, epsilon=8.0),
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


def in_process(*arguments: str | Path) -> Result:
    """The command in this process: what is printed and the exit code, without a second
    interpreter's start."""
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_central_calibration_by_every_mechanism(mechanism: str, records: Path) -> None:
    """Certified mechanisms promise 1 - alpha and keep it, the others promise nothing and say why;
    epsilon is as asked."""
    gaussian = mechanism in ("gaussian-search", "noisy-midpoint")
    run = in_process(
        "--data",
        records,
        "--method",
        "central",
        "--mechanism",
        mechanism,
        "--epsilon",
        "2",
        "--bins",
        "64",
        "--trials",
        "5",
        "--seed",
        "1",
        "--json",
        "-",
        *(["--privacy-delta", "1e-6"] if gaussian else []),
    )
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    given = result["arguments"]
    assert 1.9 <= given["exact_epsilon"] <= 2.0 or mechanism in ("laplace-counts", "pps", "dpcp")
    assert given["exact_epsilon"] <= 2.0
    assert (given["kind"], given["adjacency"]) == ("marginal", "replace-one")
    if given["certificate"] == "certified":
        assert result["mean"]["certified_level"] == 0.9
        # Marginal over calibration; 5 x 1,500 calibration records leave a deviation of 0.004, five
        # of which are allowed.
        assert result["mean"]["coverage"] >= 0.9 - 0.02
    else:
        assert mechanism in ("dpcp", "noisy-midpoint")
        assert result["mean"]["certified_level"] is None


def test_central_regression_covers_with_intervals(tmp_path: Path) -> None:
    """Predictions and targets from a file, a public range: intervals of the right width, promised
    and kept."""
    _, targets, truth = line(4_000, np.random.default_rng(1))
    np.savez(tmp_path / "numbers.npz", predictions=truth, targets=targets)
    run = in_process(
        "--data",
        tmp_path / "numbers.npz",
        "--method",
        "central",
        "--task",
        "regression",
        "--range",
        "2",
        "--trials",
        "5",
        "--seed",
        "1",
        "--json",
        "-",
    )
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    assert (result["arguments"]["bound"], result["arguments"]["labels"]) == (2.0, None)
    assert 0.89 <= result["mean"]["coverage"] <= 0.95
    # Noise of deviation 0.5 cut at three: 90% of it lies within 0.81, so a width of 1.63 and what
    # privacy adds.
    assert 1.6 <= result["mean"]["mean_size"] <= 1.9


def test_an_interval_without_bound_has_no_width() -> None:
    """With a range too small for the residuals the threshold is trivial: everything is covered and
    no width is claimed."""
    numbers = Predictions("far off", np.zeros(400), np.full(400, 9.0), 1.0)
    result, _ = evaluate(numbers, Central(n=200, trials=2, seed=1))
    assert (result["mean"]["coverage"], result["mean"]["mean_size"], result["mean"]["trivial"]) == (
        1.0,
        None,
        1.0,
    )


@pytest.mark.parametrize(
    ("task", "variant"), [("classification", "certified"), ("regression", "scp-f")]
)
def test_full_data_from_the_command_line(task: str, variant: str, tmp_path: Path) -> None:
    """Features and targets from a file are trained on and calibrated on; the total epsilon is the
    one asked for."""
    rng, path = np.random.default_rng(1), tmp_path / "records.npz"
    if task == "classification":
        features, labels = Clusters.drawn(rng, separation=1.5).draw(1_500, rng)
        np.savez(path, features=features, labels=labels)
        more = ["--feature-range", "-6", "6"]
    else:
        features, targets, _ = line(1_500, rng)
        np.savez(path, features=features, targets=targets)
        more = ["--feature-range", "-1", "1", "--range", "4"]
    run = in_process(
        "--data",
        path,
        "--method",
        "full-data",
        "--task",
        task,
        "--variant",
        variant,
        "--epsilon",
        "4",
        "--n",
        "1000",
        "--trials",
        "1",
        "--seed",
        "1",
        "--json",
        "-",
        *more,
        *(["--card", str(tmp_path / "card.json")] if variant == "certified" else []),
    )
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    given = result["arguments"]
    assert 3.95 <= given["exact_epsilon"] <= 4.0
    assert given["adjacency"] == "add-remove"
    if variant == "certified":
        assert (given["certificate"], result["mean"]["certified_level"]) == ("certified", 0.9)
        assert result["mean"]["coverage"] >= 0.87
        card = read_card(tmp_path / "card.json")
        assert all(finding.holds for finding in verify(card, key=SIMULATION_PUBLIC))
        assert (card.formal["decision"], card.formal["calibration"]["rank"]) == (
            "simulation",
            given["rank"],
        )
    else:
        assert (given["certificate"], given["buffer_is"], given["buffer"]) == (
            "floors only",
            "heuristic buffer",
            10,
        )
        assert 0 < given["black_box_floor"] < 0.9
        assert given["stability_bound"] is None


CENTRAL = ["--method", "central"]
FULL = ["--method", "full-data"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*CENTRAL, "--beta", "0.1"], "beta must be below alpha"),
        ([*CENTRAL, "--beta", "0"], "beta is 0.0"),
        ([*CENTRAL, "--bins", "1"], "bins is 1"),
        ([*CENTRAL, "--n", "5"], "infeasible"),
        ([*CENTRAL, "--n", "3000"], "accepted are 1 to 2999"),
        ([*CENTRAL, "--mechanism", "median"], "accepted: laplace-counts"),
        ([*CENTRAL, "--mechanism", "gaussian-search"], "needs --privacy-delta"),
        ([*CENTRAL, "--privacy-delta", "1e-6"], "is pure"),
        ([*CENTRAL, "--epsilon", "0"], "epsilon is 0.0"),
        ([*CENTRAL, "--task", "ranking"], "accepted: classification, regression"),
        ([*CENTRAL, "--task", "regression"], "missing: predictions, targets"),
        (["--task", "regression"], "accepted: central, full-data"),
        (FULL, "--feature-range LOW HIGH"),
        ([*FULL, "--feature-range", "1", "0"], "missing: features"),
        ([*FULL, "--variant", "dpcp", "--card", "x.json"], "accepted here: full-data certified"),
        ([*CENTRAL, "--card", "x.json"], "accepted here: full-data certified"),
        ([*CENTRAL, "--delta", "0.1"], "delta is now failure-probability"),
    ],
)
def test_impossible_central_arguments_get_one_clear_line(
    arguments: list[str], says: str, records: Path
) -> None:
    """Exit code 2 and one line with what was found and what is accepted, for central and full-data
    methods too."""
    run = in_process("--data", records, *arguments)
    assert run.exit_code == 2, run.output
    assert run.stderr.count("\n") == 1
    assert says in run.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--share", "1"], "share is 1.0"),
        (["--variant", "median"], "accepted: certified, dpcp, scp-f"),
        (["--beta", "0.2"], "beta must be below alpha"),
        (["--privacy-delta", "0"], "delta is 0.0"),
        (["--n", "20", "--epsilon", "4"], "infeasible: rank"),
        (["--variant", "scp-f", "--stability", "1", "1", "1", "0"], "probability"),
        (["--feature-range", "1", "0"], "low < high"),
        (["--data", "nan"], "no finite numbers"),
        (["--data", "text"], "no finite numbers"),
        (["--data", "short"], "features have shape"),
        (["--data", "plain", "--task", "regression"], "missing: targets"),
    ],
)
def test_impossible_full_data_arguments_get_one_clear_line(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    """Exit code 2 before anything is trained."""
    features, labels = np.random.default_rng(0).uniform(-1, 1, (60, 2)), np.arange(60) % 3
    files: dict[str, dict[str, Any]] = {
        "plain": {"features": features, "labels": labels},
        "nan": {"features": np.where(features > 0.9, np.nan, features), "labels": labels},
        "text": {"features": features.astype(str), "labels": labels},
        "short": {"features": features, "labels": labels[:-1]},
    }
    for name, arrays in files.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    named = [str(tmp_path / f"{word}.npz") if word in files else word for word in arguments]
    run = in_process("--data", tmp_path / "plain.npz", "--feature-range", "-1", "1", *FULL, *named)
    assert run.exit_code == 2, run.output
    assert run.stderr.count("\n") == 1
    assert says in run.stderr


def test_constants_vouched_for_bring_the_bound_they_are_for(tmp_path: Path) -> None:
    """With Theorem 3's constants DP-SCP-F uses its buffer, states its bound, and calls it
    conditional."""
    features, targets, _ = line(1_500, np.random.default_rng(1))
    np.savez(tmp_path / "numbers.npz", features=features, targets=targets)
    run = in_process(
        "--data",
        tmp_path / "numbers.npz",
        *FULL,
        "--task",
        "regression",
        "--range",
        "4",
        "--feature-range",
        "-1",
        "1",
        "--variant",
        "scp-f",
        "--stability",
        "1",
        "2",
        "0.0001",
        "0.01",
        "--n",
        "1000",
        "--trials",
        "1",
        "--seed",
        "1",
        "--json",
        "-",
    )
    assert run.exit_code == 0, run.output
    given = json.loads(run.stdout)["arguments"]
    assert (given["certificate"], given["buffer_is"]) == (
        "conditional on assumptions",
        "Theorem 3's",
    )
    assert given["stability_bound"] == pytest.approx(0.999 * (0.9 - 0.0004 - 0.03 - 1 / 1001))


LOCAL, ELSEWHERE = "labels, bits", "central, full-data"


@pytest.mark.parametrize(
    ("arguments", "owners"),
    [
        ([*CENTRAL, "--failure-probability", "0.1"], LOCAL),
        ([*FULL, "--max-corrupt", "1"], LOCAL),
        ([*CENTRAL, "--channel", "auto"], LOCAL),
        ([*CENTRAL, "--variant", "certified"], f"{LOCAL}, full-data"),
        (["--privacy-delta", "1e-6"], ELSEWHERE),
        (["--method", "bits", "--bins", "64"], ELSEWHERE),
        (["--beta", "0.01"], ELSEWHERE),
        ([*FULL, "--mechanism", "pps"], "central"),
        ([*CENTRAL, "--share", "0.5"], "full-data:certified, full-data:dpcp"),
        ([*FULL, "--variant", "split", "--share", "0.5"], "full-data:certified, full-data:dpcp"),
        ([*FULL, "--buffer", "3"], "full-data:scp-f"),
        ([*FULL, "--stability", "1", "1", "1", "0.1"], "full-data:scp-f"),
        ([*CENTRAL, "--feature-range", "0", "1"], "full-data"),
        ([*CENTRAL, "--range", "1"], "regression"),
        ([*CENTRAL, "--task", "regression", "--score", "aps"], "classification"),
    ],
)
def test_an_option_of_another_method_is_refused(arguments: list[str], owners: str) -> None:
    """An option that would be ignored is exit code 2 and one line with its name and the methods
    that it belongs to."""
    run = in_process(*arguments)
    assert run.exit_code == 2, run.output
    assert run.stderr.count("\n") == 1
    assert " is given, which " in run.stderr
    assert f"; it belongs to {owners}" in run.stderr


def test_limits_of_features_are_for_records_that_are_given() -> None:
    """The records that come with the project have public limits; others are refused and not
    ignored."""
    run = in_process(*FULL, "--feature-range", "0", "9")
    assert (run.exit_code, "--feature-range is given without --data" in run.stderr) == (2, True)


def test_a_column_of_numbers_is_one_number_a_record(tmp_path: Path) -> None:
    """Predictions and targets of shape (n, 1) give the result that (n,) give; n x n pairs would
    give another coverage."""
    _, targets, truth = line(2_000, np.random.default_rng(1))
    results = []
    for name, one, other in (
        ("flat", truth, targets),
        ("column", truth[:, None], targets[:, None]),
        ("mixed", truth[:, None], targets),
    ):
        np.savez(tmp_path / f"{name}.npz", predictions=one, targets=other)
        run = in_process(
            "--data",
            tmp_path / f"{name}.npz",
            *CENTRAL,
            "--task",
            "regression",
            "--range",
            "2",
            "--trials",
            "2",
            "--seed",
            "1",
            "--json",
            "-",
        )
        assert run.exit_code == 0, run.output
        results.append(json.loads(run.stdout)["trials"])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("shape", [(1_000, 2), (2, 1_000), (1_000, 1, 1), ()])
@pytest.mark.parametrize("what", ["predictions", "targets"])
def test_numbers_of_another_shape_are_refused(
    what: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Exit code 2 and one line with the file, the shape that was found and those that are
    accepted."""
    path, flat = tmp_path / "numbers.npz", np.zeros(shape[:1] or 1_000)
    arrays: dict[str, Any] = {"predictions": flat, "targets": flat, what: np.zeros(shape)}
    np.savez(path, **arrays)
    run = in_process("--data", path, *CENTRAL, "--task", "regression", "--range", "2")
    assert (run.exit_code, run.stderr.count("\n")) == (2, 1), run.output
    assert f"{path}: {what} have shape {shape}; accepted are (n,) and (n, 1)" in run.stderr


def test_targets_to_learn_from_may_be_a_column(tmp_path: Path) -> None:
    """Records to learn from take targets of shape (n, 1) as n, and refuse two columns."""
    features, targets, _ = line(300, np.random.default_rng(1))
    np.savez(tmp_path / "column.npz", features=features, targets=targets[:, None])
    np.savez(tmp_path / "two.npz", features=features, targets=np.stack([targets, targets], axis=1))
    read = lessons(tmp_path / "column.npz", "regression", 4.0, (-1.0, 1.0))
    assert np.array_equal(read.targets, targets)
    with pytest.raises(
        BadInput, match=r"targets have shape \(300, 2\); accepted are \(n,\) and \(n, 1\)"
    ):
        lessons(tmp_path / "two.npz", "regression", 4.0, (-1.0, 1.0))
