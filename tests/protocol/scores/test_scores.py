from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from confide.protocol.cards.verify.released import released_score
from confide.protocol.errors import BadInput
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.probabilities import check_labels, check_probabilities
from confide.protocol.scores.registry import SCORES, find_label_score, register
from confide.protocol.scores.scoring import all_scores, true_scores
from tests.support.owners.owners import PLAN

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


def test_a_score_registered_by_a_test_serves_a_plan() -> None:
    """Once registered, a plan names it with its constants, these reach its function, and its name
    is taken."""
    toy = LabelScore(
        "toy-power", lambda r, *, power: (1 - r.own) ** power, parameters={"power": 2.0}
    )
    with pytest.raises(BadInput, match="score is 'toy-power power=3'"):
        replace(PLAN, score="toy-power power=3")
    register(toy)
    try:
        plan = replace(PLAN, score="toy-power power=3")
        score = find_label_score(plan.score)
        assert not score.randomized
        assert all_scores(score, EXAMPLE).tolist() == ((1 - EXAMPLE) ** 3).tolist()
        with pytest.raises(BadInput, match="'toy-power' is taken"):
            register(toy)
        released = {"score": plan.score, "task": "classification", "labels": 2}
        assert all(finding.holds for finding in released_score({"released": released}))
    finally:
        del SCORES[toy.name]
    assert [finding.holds for finding in released_score({"released": released})] == [False]
