"""The scores of true labels, and of every label, from a model's probabilities."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.scores.base import Score
from confide.protocol.scores.probabilities import (
    check_labels,
    check_shape,
    check_uniforms,
    chunks,
    working,
)
from confide.protocol.scores.ranking import FullRanking, TrueRanking

Array = NDArray[Any]


def true_scores(
    score: Score, probs: ArrayLike, labels: ArrayLike, *, u: ArrayLike | None = None
) -> Array:
    """Return the (n,) scores of the given labels, without sorting.

    They equal the corresponding entries of `all_scores` to the bit.
    """
    probs = check_shape(probs)
    labels = check_labels(labels, n=len(probs), k=probs.shape[1])
    uniforms = check_uniforms(u, len(probs))
    return np.clip(score(TrueRanking(probs, uniforms, labels)), 0, 1).astype(
        working(probs.dtype), copy=False
    )


def all_scores(score: Score, probs: ArrayLike, *, u: ArrayLike | None = None) -> Array:
    """Return the (n, K) scores of every label."""
    probs = check_shape(probs)
    uniforms = check_uniforms(u, len(probs))
    out = np.empty(probs.shape, dtype=working(probs.dtype))
    for rows in chunks(probs):
        part = probs[rows].astype(out.dtype, copy=False)
        out[rows] = np.clip(
            score(FullRanking(part, None if uniforms is None else uniforms[rows])), 0, 1
        )
    return out
