from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.classification import (
    SCORES,
    all_scores,
    check_labels,
    check_probabilities,
    true_scores,
)
from confide.protocol.scores.regression import REGRESSION_SCORES, AbsoluteResidual, QuantileResidual

EXAMPLE = np.array([[0.5, 0.2, 0.3], [0.25, 0.5, 0.25]])


def probabilities(seed: int, n: int, k: int, dtype: Any, *, tied: bool) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 4, (n, k)) + 0.25 if tied else rng.gamma(0.3, size=(n, k)) + 1e-12
    return (raw / raw.sum(axis=1, keepdims=True)).astype(dtype)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(SCORES)),
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(2, 40),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    tied=st.booleans(),
)
def test_all_scores_and_true_scores_agree_to_the_bit(
    name: str, seed: int, k: int, dtype: Any, tied: bool
) -> None:
    """Sorting every label and a masked sum over one give the same bits, ties and float types
    whatever."""
    probs = probabilities(seed, 60, k, dtype, tied=tied)
    rng = np.random.default_rng(seed)
    labels, u = rng.integers(0, k, 60), rng.random(60)
    every = all_scores(SCORES[name], probs, u=u)
    own = true_scores(SCORES[name], probs, labels, u=u)
    assert np.array_equal(every[np.arange(60), labels], own)
    assert every.dtype == own.dtype == (np.float64 if dtype is np.float64 else np.float32)
    assert every.min() >= 0
    assert every.max() <= 1


def test_scores_have_their_textbook_values() -> None:
    """Worked by hand on one record with distinct probabilities and one with a tie, which the index
    breaks."""
    u = np.array([0.5, 0.5])
    expected = {
        "hps": [[0.5, 0.8, 0.7], [0.75, 0.5, 0.75]],
        "aps": [[0.5, 1.0, 0.8], [0.75, 0.5, 1.0]],
        "aps-randomized": [[0.25, 0.9, 0.65], [0.625, 0.25, 0.625]],
        "raps": [[0.5, 1.0, 0.8], [0.75, 0.5, 1.0]],
        "saps": [[0.5 / 1.2, 0.7 / 1.2, 0.6 / 1.2], [0.6 / 1.2, 0.5 / 1.2, 0.7 / 1.2]],
        "top-k": [[1 / 3, 1.0, 2 / 3], [2 / 3, 1 / 3, 1.0]],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(
            all_scores(SCORES[name], EXAMPLE, u=u), values, atol=1e-9, err_msg=name
        )


def test_raps_charges_ranks_beyond_the_free_ones() -> None:
    """With ten labels the last rank pays five penalties, and the largest score is 1."""
    probs = np.linspace(2, 1, 10)[None] / 15
    raps, aps = (all_scores(SCORES[name], probs)[0] for name in ("raps", "aps"))
    np.testing.assert_allclose(raps[:5], aps[:5] / 1.05, atol=1e-9)
    np.testing.assert_allclose(raps[9], 1.0, atol=1e-9)


def test_float32_is_not_copied_to_float64() -> None:
    """Scores of float32 probabilities are float32."""
    assert (
        true_scores(SCORES["aps"], EXAMPLE.astype(np.float32), np.array([0, 1])).dtype == np.float32
    )


def test_a_randomised_score_asks_for_its_numbers() -> None:
    """Without u the message says what is missing."""
    with pytest.raises(BadInput, match="one uniform number"):
        all_scores(SCORES["aps-randomized"], EXAMPLE)


@pytest.mark.parametrize(
    "bad",
    [
        [[0.5, 0.4], [0.5, 0.5]],
        [[0.5, np.nan], [0.5, 0.5]],
        [[1.5, -0.5], [0.5, 0.5]],
        [[np.inf, 0.0], [0.5, 0.5]],
        [0.5, 0.5],
        [[1.0], [1.0]],
        [["a", "b"]],
        [[1, 0], [0, 1]],
    ],
)
def test_what_is_not_a_probability_is_refused(bad: list[Any]) -> None:
    """Sums off one, NaN, infinity, negative numbers, a wrong shape, one column, text and
    integers."""
    with pytest.raises(BadInput, match="accepted"):
        check_probabilities(np.array(bad))


@pytest.mark.parametrize("bad", [[0, 3], [-1, 0], [0], [[0], [1]], [0.0, 1.0], [True, False]])
def test_what_is_not_a_label_is_refused(bad: list[Any]) -> None:
    """Out of range, too few, of the wrong shape or type."""
    with pytest.raises(BadInput, match="accepted"):
        check_labels(np.array(bad), n=2, k=3)


def test_regression_intervals_hold_exactly_the_conforming_targets() -> None:
    """For both scores, y lies in the interval at q exactly when its score is at most q."""
    rng = np.random.default_rng(1)
    targets = rng.normal(0, 1, 4_000)
    ends = np.sort(rng.normal(0, 1, (4_000, 2)), axis=1)
    for name, predictions in (("residual", ends[:, 0]), ("cqr", ends)):
        score = REGRESSION_SCORES[name](bound=3.0)
        values = score.true_scores(predictions, targets)
        for q in (0.0, 0.3, 0.6, 1.0):
            low, high = score.interval(predictions, q)
            inside = (low - 1e-12 <= targets) & (targets <= high + 1e-12)
            assert np.array_equal(inside, values <= q + 1e-12)


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
    for make in (AbsoluteResidual, QuantileResidual):
        with pytest.raises(BadInput, match="public bound"):
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
