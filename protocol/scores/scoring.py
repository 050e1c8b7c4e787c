"""The scores of true labels, and of every label, from a model's probabilities."""

from typing import Any

from numpy.typing import ArrayLike, NDArray

from confide.protocol.scores.label_score import LabelScore

Array = NDArray[Any]


def true_scores(
    score: LabelScore, probs: ArrayLike, labels: ArrayLike, *, u: ArrayLike | None = None
) -> Array:
    """Return the (n,) scores of the given labels, without sorting.

    They equal the corresponding entries of `all_scores` to the bit.
    """
    return score.true_scores(probs, labels, u=u)


def all_scores(score: LabelScore, probs: ArrayLike, *, u: ArrayLike | None = None) -> Array:
    """Return the (n, K) scores of every label."""
    return score.all_scores(probs, u=u)
