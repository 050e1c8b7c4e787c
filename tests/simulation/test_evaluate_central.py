import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.quantiles.published import pps_gamma
from confide.aggregator.quantiles.registry import MECHANISMS
from confide.simulation.data.population import Predictions
from confide.simulation.data.synthetic import line
from confide.simulation.evaluate.central import Central
from confide.simulation.evaluate.trials import run_trials
from tests.support.simulation import CENTRAL, in_process


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
    result, _ = run_trials(numbers, Central(n=200, trials=2, seed=1))
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
    """Exit code 2 and one line with the file, the shape that was found and those that are
    accepted."""
    path, flat = tmp_path / "numbers.npz", np.zeros(shape[:1] or 1_000)
    arrays: dict[str, Any] = {"predictions": flat, "targets": flat, what: np.zeros(shape)}
    np.savez(path, **arrays)
    run = in_process("--data", path, *CENTRAL, "--task", "regression", "--range", "2")
    assert (run.exit_code, run.stderr.count("\n")) == (2, 1), run.output
    assert f"{path}: {what} have shape {shape}; accepted are (n,) and (n, 1)" in run.stderr


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
    assert "it belongs to labels, bits, central:PAC" in run.stderr


def test_bins_and_beta_suit_the_mechanism() -> None:
    """Those of pps are m* and gamma* alpha, few bins for noise on every count; given ones stay."""

    def made(mechanism: str, **given: Any) -> Central:
        return Central(n=5_000, trials=1, seed=1, epsilon=1.0, variant=mechanism, **given)

    assert made("rank-exponential").bins == 1_024
    assert made("laplace-counts").bins in (8, 16, 32)
    pps = made("pps")
    assert pps.beta == pps_gamma(n=5_000, alpha=0.1, epsilon=1.0) * 0.1
    assert pps.bins not in (None, 1_024)
    assert (made("pps", bins=64, beta=0.01).bins, made("pps", beta=0.01).beta) == (64, 0.01)
    # So few records have no rank, which is said when the setting runs.
    assert Central(n=5, trials=1, seed=1, epsilon=1.0, variant="pps").bins == 1_024
