import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.privacy.budgets import Budget
from confide.protocol.privacy.losses import Pure, SampledGaussian
from confide.protocol.privacy.profiles import Profile
from confide.protocol.simulated.settings import SIMULATION_PUBLIC
from confide.simulation.data.synthetic import LINE_TARGETS, line
from confide.simulation.evaluate.full_data.linear import LinearRecipe
from confide.simulation.evaluate.full_data.pipelines import PIPELINES
from confide.simulation.evaluate.full_data.run import Trainings, measure
from confide.simulation.evaluate.full_data.terms import PipelineTerms
from tests.support.programs.simulation import FULL, in_process

RECIPES = {
    "ols": LinearRecipe(targets=LINE_TARGETS),
    "ridge": LinearRecipe(targets=LINE_TARGETS, release="output", ridge=0.1),
    "elastic net": LinearRecipe(targets=LINE_TARGETS, release="output", ridge=0.1, lasso=0.01),
    "lasso": LinearRecipe(targets=LINE_TARGETS, lasso=0.01),
}
REGRESSION = [*FULL, "--task", "regression"]
QUICK = ["--trials", "1", "--seed", "1", "--json", "-"]


@pytest.mark.parametrize("name", RECIPES)
def test_every_method_runs_on_every_linear_model(name: str) -> None:
    """All pipelines cover about what they should, with intervals not far above the oracle's."""
    features, targets, _ = line(8_000, np.random.default_rng(2))
    learner = RECIPES[name].learner(features, targets, 4.0)
    trainings = Trainings(learner, np.arange(4_000), SeededEntropy(name))
    terms = PipelineTerms(4_000, Budget(4.0, 1e-5), bins=512)
    for method, make in PIPELINES.items():
        row = measure(trainings, make(terms, learner), np.arange(4_000, 8_000))
        assert 0.87 <= row["coverage"] <= 1, (method, row)
        # DPCP's own quantile, and PSCP's at this n, are anywhere in the upper tail.
        if method not in ("dpcp", "pscp"):
            assert 1.5 < row["mean_size"] < 4, (method, row)


def test_the_mechanism_uses_the_whole_budget() -> None:
    """One release of every record, within the budget and not far below it."""
    mechanism = RECIPES["ols"].mechanism(1_000, Budget(1.0, 1e-5))
    assert isinstance(mechanism, SampledGaussian)
    assert (mechanism.sampling_rate, mechanism.steps) == (1.0, 1)
    assert 0.99 < Profile().then(mechanism).epsilon(1e-5) <= 1.0


def test_models_do_not_depend_on_the_order_but_through_noise() -> None:
    """Without noise, records in another order give the same predictions but for the tolerance."""
    features, targets, _ = line(1_000, np.random.default_rng(2))
    learner = RECIPES["elastic net"].learner(features, targets, 4.0)
    rows = np.arange(1_000)
    one, other = (
        learner.fit(order, None, SeededEntropy(1)).predictions for order in (rows, rows[::-1])
    )
    np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LinearRecipe(targets=(1.0, 1.0)), "in order"),
        (lambda: LinearRecipe(targets=(0.0, 1.0), release="objective"), "output, statistics"),
        (lambda: LinearRecipe(targets=(0.0, 1.0), release="output"), "noise on sums"),
        (
            lambda: (
                RECIPES["ols"]
                .learner(np.zeros((4, 1)), np.zeros(4), 1.0)
                .fit(np.arange(4), Pure(1.0), SeededEntropy(1))
            ),
            "Gaussian noise on all records",
        ),
    ],
)
def test_impossible_recipes_are_refused(make: Any, says: str) -> None:
    """No limits, an unknown release, and noise on a solution without a ridge."""
    with pytest.raises(BadInput, match=says):
        make()


@pytest.mark.parametrize(
    "model",
    [
        ["--model", "ols"],
        ["--model", "ridge", "--ridge", "0.05"],
        ["--model", "lasso", "--release", "output", "--ridge", "0.1", "--lasso", "0.005"],
    ],
)
def test_linear_models_from_the_command_line(model: list[str], tmp_path: Path) -> None:
    """A certified run with a card that verifies, the total epsilon being the one asked for."""
    features, targets, _ = line(6_000, np.random.default_rng(1))
    np.savez(tmp_path / "mine.npz", features=features * 7, targets=targets)
    more = ["--feature-range", "-7", "7", "--range", "4", "--target-range", "-4", "4"]
    card = tmp_path / "card.json"
    run = in_process(
        "--data", tmp_path / "mine.npz", *REGRESSION, *model, *more, *QUICK, "--card", card
    )
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    given = result["arguments"]
    assert 0.98 <= given["exact_epsilon"] <= 1.0
    assert given["training"]["sampling_rate"] == given["training"]["steps"] == 1
    assert result["mean"]["coverage"] >= 0.87
    found = read_card(card)
    assert all(finding.holds for finding in verify(found, key=SIMULATION_PUBLIC))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*FULL, "--model", "ols"], "task is classification"),
        ([*REGRESSION, "--model", "tree"], "accepted: network, ols, ridge, lasso"),
        ([*REGRESSION, "--model", "ols", "--ridge", "1"], "belongs to ridge, lasso"),
        ([*REGRESSION, "--model", "ols", "--epochs", "3"], "belongs to network"),
        ([*REGRESSION, "--lasso", "1"], "belongs to lasso"),
        ([*REGRESSION, "--model", "ridge", "--ridge", "0"], "noise on sums"),
        ([*REGRESSION, "--model", "lasso", "--release", "output"], "noise on sums"),
        ([*REGRESSION, "--model", "ols", "--target-range", "1", "0"], "in order"),
        (["--model", "ols"], "belongs to full-data"),
    ],
)
def test_options_that_do_not_fit_get_one_clear_line(arguments: list[str], says: str) -> None:
    """Exit code 2 and one line that names what is accepted."""
    run = in_process(*arguments, "--trials", "1")
    assert run.exit_code == 2, run.output
    assert run.stderr.count("\n") == 1
    assert says in run.stderr


def test_targets_of_a_file_need_limits(tmp_path: Path) -> None:
    """Limits of targets read off the records would leave with the model."""
    features, targets, _ = line(300, np.random.default_rng(1))
    np.savez(tmp_path / "mine.npz", features=features, targets=targets)
    more = ["--feature-range", "-1", "1", "--range", "4", "--model", "ols"]
    run = in_process("--data", tmp_path / "mine.npz", *REGRESSION, *more)
    assert run.exit_code == 2
    assert "--target-range LOW HIGH" in run.stderr
