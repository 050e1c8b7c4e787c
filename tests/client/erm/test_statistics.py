import math
from typing import Any

import numpy as np
import pytest

from confide.client.erm import statistics as statistics_module
from confide.client.erm.objective import Objective
from confide.client.erm.solver import solve
from confide.client.erm.statistics import SufficientStatistics
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.cards.mutants import mutant
from tests.support.truth.least_squares import made_up, one_more


def step(module: Any, columns: int, row: Any, target: float) -> tuple[int, int]:
    """The squared length by which one record moves the sums, and the squared sensitivity."""
    release = module.SufficientStatistics(n=100, columns=columns)
    before = made_up(100, columns)
    after = one_more(before, row, target)
    difference = release.sums(*after) - release.sums(*before)
    return sum(int(value) ** 2 for value in difference), release.sensitivity**2


@pytest.mark.parametrize("columns", [1, 2, 7, 20])
def test_the_worst_record_moves_the_sums_as_far_as_stated(columns: int) -> None:
    """A record of ones attains the sensitivity but for rounding up, any other stays below."""
    far, allowed = step(statistics_module, columns, np.ones(columns), -1.0)
    assert far <= allowed < far + 3 * math.isqrt(far)
    assert allowed >= CLIP_UNITS**2
    rng = np.random.default_rng(columns)
    for _ in range(20):
        row = np.append(rng.uniform(-1, 1, columns - 1), 1.0)
        near, _ = step(statistics_module, columns, row, float(rng.uniform(-1, 1)))
        assert near <= allowed


@pytest.mark.parametrize(
    ("old", "new"), [("p * (p + 3) // 2", "p * (p + 1) // 2"), ("<< 4 * _BITS", "<< 3 * _BITS")]
)
def test_understated_sensitivities_are_found(old: str, new: str) -> None:
    """Forgetting X'y, or the scale of a product, fails on that record."""
    wrong = mutant(
        statistics_module, f"({old}" if "p *" in old else old, f"({new}" if "p *" in old else new
    )
    far, allowed = step(wrong, 7, np.ones(7), -1.0)
    assert far > 1.2 * allowed


def test_sums_do_not_depend_on_the_order() -> None:
    """Integers are added without rounding, so every order gives the same sums."""
    rows, targets = made_up(3_000, 6)
    release = SufficientStatistics(n=3_000, columns=6)
    order = np.random.default_rng(1).permutation(3_000)
    assert np.array_equal(release.sums(rows, targets), release.sums(rows[order], targets[order]))


def test_without_noise_it_is_least_squares() -> None:
    """Without noise and penalties the weights are numpy's, but for the rounding of records."""
    rows, targets = made_up(2_000, 6)
    release = SufficientStatistics(n=2_000, columns=6)
    found = release.release(rows, targets, noise_multiplier=0.0, entropy=SeededEntropy(1))
    np.testing.assert_allclose(found, np.linalg.lstsq(rows, targets)[0], atol=1e-4)


def test_penalties_are_those_of_the_objective() -> None:
    """With a ridge and a lasso the weights are the minimum that the certified solver finds."""
    rows, targets = made_up(2_000, 6)
    objective = Objective(n=2_000, columns=6, ridge=0.01, lasso=0.02, limit=10.0)
    release = SufficientStatistics(n=2_000, columns=6, ridge=0.01, lasso=0.02)
    found = release.release(rows, targets, noise_multiplier=0.0, entropy=SeededEntropy(1))
    np.testing.assert_allclose(found, solve(objective, rows, targets, within=1e-9), atol=1e-4)
    assert (found == 0).any()


def test_noise_has_its_scale_and_leaves_a_useful_model() -> None:
    """At noise multiplier 4 and 20,000 records weights are within a tenth of the truth, and two
    draws differ."""
    rows, targets = made_up(20_000, 6)
    release, truth = SufficientStatistics(n=20_000, columns=6), np.linspace(-1, 1, 6) / 6
    one, other = (
        release.release(rows, targets, noise_multiplier=4.0, entropy=SeededEntropy(seed))
        for seed in (1, 2)
    )
    assert np.abs(one - truth).max() < 0.1
    assert 1e-6 < np.abs(one - other).max() < 0.1


def test_what_cannot_be_released_is_refused() -> None:
    """Penalties below 0, and noise beyond the sampler, are named."""
    with pytest.raises(BadInput, match="ridge penalty"):
        SufficientStatistics(n=10, columns=3, ridge=-1.0)
    release = SufficientStatistics(n=10, columns=900)
    with pytest.raises(BadInput, match="fewer features"):
        release.release(
            np.ones((2, 900)), np.ones(2), noise_multiplier=200.0, entropy=SeededEntropy(1)
        )
