"""Labels within a threshold are those whose scores are, to the bit."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.membership import labels_within
from confide.protocol.scores.registry import SCORES, find_label_score
from confide.protocol.scores.scoring import all_scores

# The first and the last labels conform best: no set is a beginning of the order.
ENDS = LabelScore("ends", lambda ranking: 1 - abs(2 * ranking.rank / (ranking.labels - 1) - 1))


def some(k: int, *, rounded: int | None) -> NDArray[Any]:
    """Probabilities of records; rounded ones tie."""
    probs = np.random.default_rng(k).dirichlet(np.full(k, 0.3), 60)
    if rounded is not None:
        probs = np.ceil(probs * rounded)
        probs /= probs.sum(axis=1, keepdims=True)
    return probs


@pytest.mark.parametrize(
    "score",
    [*SCORES.values(), find_label_score("aps temperature=1.7"), ENDS],
    ids=lambda score: score.text,
)
@pytest.mark.parametrize("k", [2, 3, 26, 300])
def test_flags_are_those_of_the_scores(score: LabelScore, k: int) -> None:
    """Over all scores, with ties and without, in both precisions, thresholds that are scores."""
    for dtype in (np.float32, np.float64):
        for rounded in (None, 4):
            probs = some(k, rounded=rounded).astype(dtype)
            u = np.random.default_rng(1).random(len(probs)) if score.randomized else None
            scores = all_scores(score, probs, u=u)
            chosen = np.random.default_rng(2).choice(scores.ravel(), 8).tolist()
            for threshold in (0.0, 1.0, *chosen):
                found = labels_within(score, probs, threshold, u=u)
                assert np.array_equal(found, scores <= np.float64(threshold))


def test_no_records_have_no_labels() -> None:
    """An empty batch gives an empty answer."""
    assert labels_within(SCORES["aps"], np.empty((0, 3)), 0.5).shape == (0, 3)
