"""Scores of numbers, and the intervals of a threshold."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.regression import (
    RESIDUALS,
    AbsoluteResidual,
    NormalisedResidual,
    QuantileResidual,
    Residual,
)


def made(score: type[Residual], n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Results of a model and targets of many sizes."""
    rng = np.random.default_rng(seed)
    targets = rng.normal(0, 1, n) * 10.0 ** rng.integers(-6, 6, n)
    results = targets[:, None] + rng.normal(0, 1, (n, len(score.columns)))
    if score is QuantileResidual:
        results.sort(axis=1)
    if score is NormalisedResidual:
        results[:, 1] = np.abs(rng.normal(0, 1, n))
    return results, targets


@pytest.mark.parametrize("kind", RESIDUALS.values(), ids=RESIDUALS)
def test_intervals_hold_exactly_the_conforming_targets(kind: type[Residual]) -> None:
    """y lies in the interval at q if its score is at most q, to the last bit, and otherwise only
    within the rounding of the arithmetic.

    Thresholds are scores of the records themselves: the edges on which rounding would lose them.
    """
    results, targets = made(kind, 3_000, 1)
    score = kind(3.0)
    values = score.true_scores(results, targets)
    for q in [0.0, 0.3, 0.6, *values[values < 1][:300].tolist()]:
        low, high = score.interval(results, q)
        inside = (low <= targets) & (targets <= high)
        assert inside[values <= q].all()
        size = 1e-12 * (1 + np.abs(targets) + np.abs(results).max(axis=1))
        well_inside = (low + size <= targets) & (targets <= high - size)
        assert (values[well_inside] <= q).all()
    low, high = score.interval(results, 1.0)
    assert np.isinf(low).all()
    assert np.isinf(high).all()


@pytest.mark.parametrize("kind", RESIDUALS.values(), ids=RESIDUALS)
def test_owners_score_whatever_their_records_hold(kind: type[Residual]) -> None:
    """Targets and results that are no numbers score 1; the others as elsewhere, to the bit."""
    results, targets = made(kind, 1_000, 2)
    score = kind(3.0)
    results, whole = results.astype(np.float32), np.ones(1_000, dtype=bool)
    for i, bad in enumerate([np.nan, np.inf, -np.inf]):
        targets[i], results[10 + i, -1] = bad, bad
        whole[[i, 10 + i]] = False
    found = score.owned_scores(results, targets, u=None)
    assert (found[~whole] == 1).all()
    assert np.array_equal(found[whole], score.true_scores(results[whole], targets[whole]))
    assert found.min() >= 0
    assert found.max() <= 1


def test_a_scale_of_0_conforms_with_the_prediction_alone() -> None:
    """A scale that is not above 0 gives an interval of one number."""
    score = NormalisedResidual(2.0)
    results = np.array([[5.0, 0.0], [5.0, -1.0], [5.0, 0.0]])
    assert score.true_scores(results, np.array([5.0, 5.0, 5.1])).tolist() == [0.0, 0.0, 1.0]
    low, high = score.interval(results, 0.5)
    assert ((low <= 5.0) & (high >= 5.0)).all()
    assert (high - low).max() < 1e-12


def test_small_integers_do_not_wrap_around() -> None:
    """Predictions and targets of narrow types are taken as numbers."""
    residual = AbsoluteResidual(bound=100.0)
    assert residual.true_scores(
        np.array([5], dtype=np.uint8), np.array([3], dtype=np.uint8)
    ).tolist() == [0.02]
    assert residual.true_scores(
        np.array([100], dtype=np.int8), np.array([-100], dtype=np.int8)
    ).tolist() == [1.0]


@pytest.mark.parametrize("bound", [0.0, -1.0, float("inf"), float("nan")])
def test_regression_bounds_must_be_public_numbers(bound: float) -> None:
    """A bound that is not positive and finite is refused."""
    for make in RESIDUALS.values():
        with pytest.raises(BadInput, match="bound of score"):
            make(bound=bound)


def test_regression_targets_must_match() -> None:
    """A missing target, a NaN and a CQR prediction with one column are refused."""
    with pytest.raises(
        BadInput, match="3 predictions with 2 targets; accepted is a target a prediction"
    ):
        AbsoluteResidual(bound=1.0).true_scores(np.zeros(3), np.zeros(2))
    with pytest.raises(BadInput, match="finite"):
        AbsoluteResidual(bound=1.0).true_scores(np.zeros(2), np.array([0.0, np.nan]))
    with pytest.raises(BadInput, match="two columns"):
        QuantileResidual(bound=1.0).true_scores(np.zeros(2), np.zeros(2))
