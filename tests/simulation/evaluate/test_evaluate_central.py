import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pytest

from confide.aggregator.quantiles.published import pps_gamma
from confide.aggregator.quantiles.registry import MECHANISMS
from confide.simulation.data.population import Predictions
from confide.simulation.data.synthetic import line
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.repeated import run_trials
from tests.support.programs.simulation import CENTRAL, in_process


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
    if mechanism not in ("dpcp", "noisy-midpoint"):
        assert result["mean"]["certified_level"] == 0.9
        # Marginal over calibration; 5 x 1,500 calibration records leave a deviation of 0.004, five
        # of which are allowed.
        assert result["mean"]["coverage"] >= 0.9 - 0.02
    else:
        assert given["certificate"] != "certified"
        assert result["mean"]["certified_level"] is None


SCORES = ["absolute-residual bound=2", "normalised-residual bound=4", "cqr bound=2"]


@pytest.mark.parametrize("method", ["central", "bits"])
@pytest.mark.parametrize("score", SCORES)
def test_intervals_are_evaluated_by_every_score(method: str, score: str, tmp_path: Path) -> None:
    """From a table of numbers: the task is that of the score, and widths are promised and kept.

    Noise has deviation 0.5 and is cut at three: 90 % of it lies within 0.81. The band is of
    constant width, so that all three scores mean the same interval, 1.63 wide."""
    rng = np.random.default_rng(1)
    _, targets, truth = line(6_000, rng)
    columns = {"target": targets, "prediction": truth, "scale": np.full(6_000, 0.5)}
    columns |= {"lower": truth - 0.5, "upper": truth + 0.5}
    pyarrow.csv.write_csv(pyarrow.table(columns), tmp_path / "numbers.csv")
    given = ("--data", tmp_path / "numbers.csv", "--method", method, "--score", score)
    out = tmp_path / "result.json"
    run = in_process(*given, *("--epsilon", "4", "--trials", "3", "--seed", "1", "--json", out))
    assert run.exit_code == 0, run.output
    assert "mean width" in run.stdout
    assert "mean set size" not in run.stdout
    result = json.loads(out.read_text())
    assert (result["arguments"]["score"], result["arguments"]["labels"]) == (score, None)
    assert 0.89 <= result["mean"]["coverage"] <= 0.96
    assert 1.6 <= result["mean"]["mean_size"] <= 2.1


def test_a_range_is_short_for_the_absolute_residual() -> None:
    """On the records that come with the project, which have a range of their own too."""
    given = ("--method", "bits", "--epsilon", "4", "--trials", "1", "--seed", "1", "--json", "-")
    named, short, usual = (
        json.loads(in_process(*given, *asked).stdout)
        for asked in (
            ("--score", "absolute-residual bound=4"),
            ("--task", "regression", "--range", "4"),
            ("--task", "regression"),
        )
    )
    assert named["trials"] == short["trials"] == usual["trials"]


def test_an_interval_without_bound_has_no_width() -> None:
    """With a range too small for the residuals the threshold is trivial: everything is covered and
    no width is claimed."""
    numbers = Predictions("far off", np.zeros(400), np.full(400, 9.0))
    score = "absolute-residual bound=1"
    result, _ = run_trials(
        numbers,
        Calibrated(method="central", variant="trusted", score=score, n=200, trials=2, seed=1),
    )
    assert (result["mean"]["coverage"], result["mean"]["mean_size"], result["mean"]["trivial"]) == (
        1.0,
        None,
        1.0,
    )


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
    """Exit code 2 and one line with the file and the shape that was found."""
    path, flat = tmp_path / "numbers.npz", np.zeros(shape[:1] or 1_000)
    arrays: dict[str, Any] = {"predictions": flat, "targets": flat, what: np.zeros(shape)}
    np.savez(path, **arrays)
    run = in_process("--data", path, *CENTRAL, "--task", "regression", "--range", "2")
    assert (run.exit_code, run.stderr.count("\n")) == (2, 1), run.output
    assert str(path) in run.stderr
    assert f"shape {shape}" in run.stderr


@pytest.mark.parametrize("mechanism", ["rank-exponential", "laplace-counts"])
@pytest.mark.parametrize("score", ["hps", "aps", "aps-randomized", "raps", "saps", "top-k"])
def test_no_default_is_trivial_on_the_embedded_data(score: str, mechanism: str) -> None:
    """Scores crowd at different places; the default grid and bins leave no score without a
    threshold."""
    run = in_process(
        *(*CENTRAL, "--score", score, "--mechanism", mechanism, "--epsilon", "1"),
        *("--trials", "3", "--seed", "1", "--json", "-"),
    )
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)["mean"]
    assert found["mean_size"] < 16
    if (score, mechanism) == ("aps", "rank-exponential"):
        # Without privacy the mean size is 9.24; 5 % more is allowed.
        assert found["mean_size"] <= 1.05 * 9.24


def test_the_grid_changes_the_result(records: Path) -> None:
    sizes = set()
    for grid in ("uniform", "logit", "mixed"):
        run = in_process(
            *("--data", records, *CENTRAL, "--grid", grid, "--bins", "32"),
            *("--trials", "3", "--seed", "1", "--json", "-"),
        )
        assert run.exit_code == 0, run.output
        sizes.add(json.loads(run.stdout)["mean"]["mean_size"])
    assert len(sizes) == 3


@pytest.mark.parametrize("mechanism", ["rank-exponential", "above-threshold"])
def test_a_pac_promise_covers_more_than_an_average(mechanism: str, records: Path) -> None:
    """The kind is said, and the threshold leaves room for the chance of the calibration."""
    found = {}
    for guarantee in ("marginal", "PAC"):
        run = in_process(
            *("--data", records, *CENTRAL, "--guarantee", guarantee, "--mechanism", mechanism),
            *(["--failure-probability", "0.05"] if guarantee == "PAC" else []),
            *("--trials", "20", "--seed", "1", "--json", "-"),
        )
        assert run.exit_code == 0, run.output
        found[guarantee] = json.loads(run.stdout)
        assert found[guarantee]["arguments"]["kind"] == guarantee
    assert found["PAC"]["mean"]["coverage"] > found["marginal"]["mean"]["coverage"]
    # 1,500 calibration records and 1,500 of the test: a few trials fall short by the test alone.
    assert sum(trial["coverage"] < 0.885 for trial in found["PAC"]["trials"]) <= 3


def test_a_pac_promise_needs_a_certified_mechanism(records: Path) -> None:
    run = in_process("--data", records, *CENTRAL, "--guarantee", "PAC", "--mechanism", "dpcp")
    assert run.exit_code == 2
    assert "dpcp certifies nothing" in run.stderr
    run = in_process("--data", records, *CENTRAL, "--failure-probability", "0.2")
    assert run.exit_code == 2
    assert "it belongs to labels:PAC, labels:band, bits:PAC" in run.stderr


def test_bins_and_beta_suit_the_mechanism(records: Path) -> None:
    """Those of pps are m* and gamma* alpha, few bins for noise on every count; given ones stay."""

    def made(mechanism: str, *given: str) -> tuple[int, float]:
        asked = ("--mechanism", mechanism, "--trials", "1", "--seed", "1", "--json", "-", *given)
        found = json.loads(in_process("--data", records, *CENTRAL, *asked).stdout)["arguments"]
        return found["bins"], found["beta"]

    assert made("rank-exponential") == (1_024, 0.0)
    assert made("laplace-counts")[0] in (4, 8, 16)
    bins, beta = made("pps")
    assert beta == pps_gamma(n=1_500, alpha=0.1, epsilon=1.0) * 0.1
    assert bins != 1_024
    assert made("pps", "--bins", "64", "--beta", "0.01") == (64, 0.01)


def test_grids_of_a_plan_are_evaluated_too(records: Path, tmp_path: Path) -> None:
    """Even on records of the provider's own, and as an operator wrote it."""
    (tmp_path / "edges.txt").write_text("0.25 0.5 0.75 1")
    thresholds = []
    for grid, option, file in (
        ("even", "--provider-data", records),
        ("given", "--edges-file", tmp_path / "edges.txt"),
    ):
        asked = ("--grid", grid, option, file, "--trials", "1", "--json", "-")
        run = in_process("--data", records, *CENTRAL, *asked)
        assert run.exit_code == 0, run.output
        thresholds.append(json.loads(run.stdout)["trials"][0]["threshold"])
    assert thresholds[0] < thresholds[1]
    assert thresholds[1] in (0.25, 0.5, 0.75, 1)


@pytest.mark.parametrize("owners", [1, 100])
def test_owners_may_noise_their_counts(owners: int, records: Path) -> None:
    """Each adds noise of its own: the promise is kept by any number, and many cost size."""
    asked = ("--variant", "owner-noised", "--owners", str(owners), "--epsilon", "2", "--seed", "1")
    run = in_process("--data", records, *CENTRAL, *asked, "--trials", "3", "--json", "-")
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert found["arguments"]["channel"] == "gaussian-search"
    assert 1.9 < found["arguments"]["exact_epsilon"] <= 2.0
    # 1,500 records to calibrate on: what one owner adds is little, what a hundred add is not.
    assert (found["mean"]["coverage"] > 0.95) == (owners == 100)
    assert found["mean"]["coverage"] > 0.88


@pytest.mark.parametrize(
    ("method", "variant", "guarantee"),
    [("labels", "certified", "marginal"), ("bits", "one-shot", "band")],
)
def test_other_guarantees_are_evaluated(
    records: Path, method: str, variant: str, guarantee: str
) -> None:
    """The kind of the promise stands beside its level; an average has no failure probability."""
    given = ["--method", method, "--variant", variant, "--guarantee", guarantee]
    given += ["--epsilon", "4", "--n", "2000", "--trials", "2", "--seed", "5"]
    run = in_process("--data", records, *given, "--json", "-")
    assert run.exit_code == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["arguments"]["kind"] == guarantee
    assert (found["arguments"]["failure_probability"] == 0) == (guarantee == "marginal")
    assert f"0.900 {guarantee}" in in_process("--data", records, *given).stdout
    if guarantee == "marginal":
        refused = in_process("--data", records, *given, "--failure-probability", "0.1")
        assert refused.exit_code == 2
        assert "failure-probability is given" in refused.stderr
