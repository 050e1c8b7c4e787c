"""Which labels score within a threshold, without the scores of all labels in their own order.

Most scores order the labels of a record, and most sets are its first labels in that order. The
scores are computed in the order of ranks; the last label within the threshold then says by one
comparison which labels are in the set. Where a set is no beginning of the order, its flags are put
back one by one. Either way the sets are those of `confide.protocol.scores.scoring.all_scores`, to
the bit.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.scores.probabilities import (
    check_shape,
    check_uniforms,
    chunks,
    tempered,
    working,
)
from confide.protocol.scores.sorted_ranking import FullRanking, OrderedRanking

if TYPE_CHECKING:
    from confide.protocol.scores.label_score import LabelScore

Array = NDArray[Any]


def labels_within(
    score: "LabelScore", probs: ArrayLike, threshold: ArrayLike, *, u: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Return (n, K) flags: the score of the label is at most the threshold.

    K thresholds are those of the labels, one each.
    """
    probs = check_shape(probs)
    uniforms = check_uniforms(u, len(probs))
    out = np.empty(probs.shape, dtype=np.bool_)
    limit, dtype = np.asarray(threshold, dtype=np.float64), working(probs.dtype)
    one = limit.ndim == 0 and len(probs) > 0
    ordered = one and _uses_order(score, probs[:1].astype(dtype), uniforms)

    for rows in chunks(probs):
        part = tempered(probs[rows], score.temperature).astype(dtype, copy=False)
        own = None if uniforms is None else uniforms[rows]
        if ordered:
            _first_labels(score, OrderedRanking(part, own), limit, out=out[rows])
        else:
            out[rows] = _scores(score, FullRanking(part, own)) <= limit
    return out


def _scores(score: "LabelScore", ranking: FullRanking | OrderedRanking) -> Array:
    """Scores in the precision of the probabilities, not in that of the uniform numbers."""
    return np.clip(score(ranking), 0, 1).astype(ranking.probs.dtype, copy=False)


def _uses_order(score: "LabelScore", record: Array, uniforms: Array | None) -> bool:
    """Whether the score reads ranks, or the probability above a label: tried on one record."""
    ranking = FullRanking(record, None if uniforms is None else uniforms[:1])
    score(ranking)
    return ranking.was_sorted


def _first_labels(score: "LabelScore", ranking: OrderedRanking, limit: Any, *, out: Array) -> None:
    inside = np.broadcast_to(_scores(score, ranking) <= limit, out.shape)
    ranking.first(inside.sum(axis=1, dtype=np.int64), out=out)
    # In a beginning of the order, a label within the threshold never follows one beyond it.
    broken = np.flatnonzero((inside[:, 1:] > inside[:, :-1]).any(axis=1))
    if len(broken):
        out[broken] = ranking.unsorted(inside)[broken]
