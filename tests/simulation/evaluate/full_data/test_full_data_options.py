import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.quantiles.histogram import histogram
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.privacy.budgets import Budget
from confide.simulation.data.limits import read_limits
from confide.simulation.data.synthetic import line
from confide.simulation.evaluate.full_data.learners import Memoriser
from confide.simulation.evaluate.full_data.pipelines import PIPELINES, certified, dpcp
from confide.simulation.evaluate.full_data.private_scaling import PrivateScaling
from confide.simulation.evaluate.full_data.terms import PipelineTerms
from tests.support.programs.simulation import FULL, in_process

REGRESSION = [*FULL, "--task", "regression"]
QUICK = ["--trials", "1", "--seed", "1", "--json", "-"]


def result(*arguments: str | Path) -> dict[str, Any]:
    run = in_process(*REGRESSION, *QUICK, *arguments)
    assert run.exit_code == 0, run.output
    return dict(json.loads(run.stdout))


def test_every_option_of_a_network_changes_its_training() -> None:
    """Layers, steps, batch, rate, clip and optimizer: each gives another model, and the plan says
    so."""
    plain = ["--steps", "8", "--n", "2000", "--bins", "256"]
    first = result(*plain)
    models = {first["trials"][0]["model"]}
    for changed in (
        ["--hidden", "8,8"],
        ["--hidden", ""],
        ["--batch", "100"],
        ["--rate", "0.02"],
        ["--clip", "0.3"],
        ["--optimizer", "sgd"],
    ):
        found = result(*plain, *changed)
        models.add(found["trials"][0]["model"])
    assert len(models) == 7
    assert first["arguments"]["training"]["steps"] == 8
    epochs = ["--epochs", "1", "--batch", "500", "--n", "2000"]
    assert result(*epochs)["arguments"]["training"]["steps"] == 4


def test_a_pair_of_limits_for_each_feature(tmp_path: Path) -> None:
    """TOML, JSON and CSV say the same, and other limits give another result."""
    features, targets, _ = line(12_000, np.random.default_rng(1))
    scale = np.array([1.0, 10.0, 100.0, 1000.0, 0.1])
    np.savez(tmp_path / "mine.npz", features=features * scale, targets=targets)
    low, high = (-scale).tolist(), scale.tolist()
    (tmp_path / "limits.toml").write_text(f"low = {low}\nhigh = {high}\n")
    (tmp_path / "limits.json").write_text(json.dumps({"low": low, "high": high}))
    lines = [f"{a},{b}" for a, b in zip(low, high, strict=True)]
    (tmp_path / "limits.csv").write_text("\n".join(["low,high", *lines]) + "\n")
    given = ["--data", str(tmp_path / "mine.npz"), "--range", "4", "--target-range", "-5", "5"]
    given += ["--epsilon", "4"]
    found = [
        result(*given, "--model", "ols", "--feature-ranges", str(tmp_path / f"limits.{kind}"))[
            "trials"
        ]
        for kind in ("toml", "json", "csv")
    ]
    assert found[0] == found[1] == found[2]
    other = result(*given, "--model", "ols", "--feature-range", "-1000", "1000")["trials"]
    assert other[0]["mean_size"] > 1.2 * found[0][0]["mean_size"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("limits.txt", "low = [0]\nhigh = [1]", "ends otherwise"),
        ("limits.toml", "low = [0]", "no 'high'"),
        ("limits.toml", "low = [0", "cannot be read"),
        ("limits.json", "[]", "cannot be read"),
        ("limits.json", '{"low": [0, 0], "high": [1]}', "shape"),
        ("limits.json", '{"low": [], "high": []}', "shape"),
        ("limits.json", '{"low": [1], "high": [0]}', "low < high"),
        ("limits.json", '{"low": [NaN], "high": [1]}', "not finite"),
        ("limits.csv", "low,top\n0,1\n", "no 'high'"),
        ("limits.csv", "low,high\n0,x\n", "cannot be read"),
    ],
)
def test_unusable_limits_are_refused(name: str, content: str, says: str, tmp_path: Path) -> None:
    """One line with the file's name and what is accepted."""
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=says) as caught:
        read_limits(tmp_path / name)
    assert name in str(caught.value)


def test_limits_for_other_features_are_refused(tmp_path: Path) -> None:
    """Three pairs for five features, a missing file, and both options at once."""
    features, targets, _ = line(300, np.random.default_rng(1))
    np.savez(tmp_path / "mine.npz", features=features, targets=targets)
    (tmp_path / "three.json").write_text('{"low": [0, 0, 0], "high": [1, 1, 1]}')
    given = ["--data", str(tmp_path / "mine.npz"), *REGRESSION, "--range", "4"]
    three = ["--feature-ranges", str(tmp_path / "three.json")]
    for more, says in (
        (three, "limits are given for 3 features and records have 5"),
        (["--feature-ranges", str(tmp_path / "none.json")], "cannot be read as limits"),
        ([*three, "--feature-range", "0", "1"], "accepted is one"),
    ):
        run = in_process(*given, *more)
        assert run.exit_code == 2, run.output
        assert says in run.stderr


def test_private_bounds_are_near_the_quantiles() -> None:
    """With many records bounds are near the quantiles 0.05 and 0.95; with few they are anywhere
    between the public limits, in order."""
    rng = np.random.default_rng(1)
    features = np.clip(rng.normal([0.0, 0.5], [0.05, 0.02], (20_000, 2)), -1, 1)
    scaling = PrivateScaling(2.0).release(features, SeededEntropy(1))
    for i in range(2):
        assert 0.93 <= np.mean(features[:, i] <= scaling.high[i]) < 1
        assert 0.93 <= np.mean(features[:, i] >= scaling.low[i]) < 1
    few = PrivateScaling(0.01).release(features[:50], SeededEntropy(1))
    assert (few.low < few.high).all()
    assert np.abs([few.low, few.high]).max() <= 1
    assert np.abs(scaling(features)).max() == 1.0


def worst(scaling: PrivateScaling, rank: Callable[[int], int]) -> float:
    """The largest log ratio of the law of one bound over data sets that differ by one record."""
    quantile, grid = scaling.quantile(1), uniform_grid(256)
    found = 0.0
    for n in range(30, 60):
        values = np.linspace(0.1, 0.4, n)
        for more in (0.05, 0.3, 0.99):
            one = quantile.law(histogram(values, grid), rank(n))
            other = quantile.law(histogram(np.append(values, more), grid), rank(n + 1))
            ratios = [float(a / b) for a, b in zip(one, other, strict=True)]
            found = max(found, *np.abs(np.log(ratios)).tolist())
    return found


def test_each_bound_costs_what_it_is_charged() -> None:
    """The exact law of a bound, whose rank follows a secret n, moves by at most epsilon/2; with a
    rank that follows n by two steps it would not."""
    scaling = PrivateScaling(1.0)
    quantile = scaling.quantile(1)
    assert 0.2 < worst(scaling, lambda n: scaling.rank(n, quantile)) <= 0.5
    assert worst(scaling, lambda n: 2 * n) > 0.5


@pytest.mark.parametrize("method", [name for name in PIPELINES if name != "differential"])
def test_scaling_is_charged_for(method: str) -> None:
    """Scaling, training and quantile together stay within the budget, and training gets less."""
    budget = Budget(2.0, 1e-5)
    plain, scaled = (
        PIPELINES[method](PipelineTerms(5_000, budget, scaling=scaling), Memoriser(64))
        for scaling in (0.0, 0.5)
    )
    if plain.profile is None:
        return
    assert scaled.profile is not None
    assert budget.allows(scaled.profile)
    assert scaled.training != plain.training
    assert any(
        0.5 in (getattr(part, "epsilon", 0),) for group in scaled.profile.groups for part in group
    )


def test_coverage_pays_for_scaling_too() -> None:
    """Bounds that the records chose tell of them as a model does: ranks rise with their epsilon."""
    budget = Budget(2.0, 1e-5)
    for make in (certified, dpcp):
        plain = make(PipelineTerms(5_000, budget, share=0.3), Memoriser(64)).rank
        # As much for training, and scaling on top.
        scaled = make(
            PipelineTerms(5_000, Budget(2.5, 1e-5), share=0.3, scaling=0.5), Memoriser(64)
        ).rank
        assert scaled > plain


def test_private_scaling_from_the_command_line(tmp_path: Path) -> None:
    """Features that fill a thirtieth of their public limits are worth scaling; cards are not."""
    features, targets, _ = line(16_000, np.random.default_rng(1))
    np.savez(tmp_path / "mine.npz", features=features, targets=targets)
    given = ["--data", str(tmp_path / "mine.npz"), "--range", "4", "--target-range", "-5", "5"]
    wide = [*given, "--model", "ols", "--feature-range", "-30", "30", "--epsilon", "4"]
    plain, scaled = result(*wide), result(*wide, "--scaling-epsilon", "2")
    assert scaled["mean"]["mean_size"] < 0.8 * plain["mean"]["mean_size"]
    assert 3.9 <= scaled["arguments"]["exact_epsilon"] <= 4.0
    assert scaled["mean"]["coverage"] >= 0.87
    for more, says in (
        (["--card", str(tmp_path / "card.json"), "--scaling-epsilon", "1"], "which no card states"),
        (["--scaling-epsilon", "4"], "below the 4.0 for all"),
    ):
        run = in_process(*REGRESSION, *wide, *more)
        assert run.exit_code == 2, run.output
        assert says in run.stderr


def test_theorems_are_stated_and_called_conditional() -> None:
    """DPCP's theorems 12 and 15 on the result and on the terminal, with what they assume."""
    given = ["--model", "ols", "--variant", "differential", "--theorem-15", "0.05", "--n", "4000"]
    found = result(*given)["arguments"]["conditional"]
    assert [bound["source"] for bound in found] == ["DPCP Theorem 12", "DPCP Theorem 15"]
    assert 0.89 < found[0]["lower"] < 0.9 < found[0]["upper"] < 1
    assert found[1]["lower"] == pytest.approx(0.9 - np.sqrt(np.log(40) / 8_000))
    shown = in_process(*REGRESSION, *QUICK[:4], *given).stdout
    assert " ".join(shown.split()).count("conditional (DPCP Theorem 1") == 2


def test_smoothness_brings_theorem_4() -> None:
    """With its constants the buffer, the bound and both expressions of Theorem 4 are stated."""
    steps = ["--steps", "20", "--rate", "1e-4", "--clip", "1e-3", "--optimizer", "sgd"]
    given = ["--variant", "scp-f", "--n", "10000", *steps]
    found = result(*given, "--smoothness", "0.01", "0.01", "2")["arguments"]
    assert (found["certificate"], found["buffer_is"]) == (
        "conditional on assumptions",
        "Theorem 3's",
    )
    mean = found["expected_distance"]["this_training"]
    assert mean == pytest.approx(1e-3 / (10_000 * 2) * (1.0002**20 - 1))
    assert mean < found["expected_distance"]["published"]
    shift, chance = 1e-4 * mean ** (2 / 3), mean ** (1 / 3)
    assert found["stability_bound"] == pytest.approx(
        0.999 * (0.9 - 2 * shift - 3 * chance - 1 / 10_001)
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--variant", "scp-f", "--smoothness", "1", "1", "1"], "--optimizer sgd"),
        (["--smoothness", "1", "1", "1"], "belongs to full-data:scp-f"),
        (["--theorem-15", "0.1"], "belongs to full-data:differential"),
        (["--epochs", "3", "--steps", "3"], "accepted is one of them"),
        (["--hidden", "16 x"], "hidden is '16 x'"),
        (["--hidden", "0"], "widths from 1"),
        (["--steps", "0"], "0 steps"),
        (["--epochs", "1e9"], "accepted are 1 to 1048576"),
        (["--optimizer", "lion"], "accepted: adam, sgd"),
        (["--rate", "0"], "must be above 0"),
        (["--variant", "differential", "--theorem-15", "0.9"], "at most 0.5"),
        (
            [
                *["--variant", "scp-f", "--optimizer", "sgd", "--smoothness", "1", "1", "100"],
                *["--rate", "1"],
            ],
            "makes no bound",
        ),
    ],
)
def test_options_that_do_not_fit_get_one_clear_line(arguments: list[str], says: str) -> None:
    """Exit code 2 and one line that names what is accepted."""
    run = in_process(*REGRESSION, *arguments, "--trials", "1")
    assert run.exit_code == 2, run.output
    assert run.stderr.count("\n") == 1
    assert says in run.stderr
