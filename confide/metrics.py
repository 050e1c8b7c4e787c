"""How good prediction sets and intervals are, on records whose truth is known.

Sets are (n, K) booleans, as `Predictor.predict_set` returns them, and truth is a label a record.
Intervals are (n, 2) numbers, as `Predictor.predict_interval` returns them, and truth is a number a
record. Arrays and torch tensors are accepted.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput, check_probability
from confide.protocol.scores.probabilities import check_labels
from confide.protocol.tensors import as_array

__all__ = [
    "Stratum",
    "class_coverage",
    "coverage",
    "covgap",
    "false_negative_rate",
    "group_coverage",
    "mean_size",
    "mean_width",
    "size_stratified_coverage",
]


class Stratum(NamedTuple):
    """Records whose sets have `low` to `high` labels, and the share of them that is covered."""

    low: int
    high: int
    records: int
    coverage: float


def coverage(predicted: Any, truth: Any) -> float:
    """Return the share of records whose set, or interval, holds the truth."""
    return float(np.mean(_covered(predicted, truth)))


def mean_size(sets: Any) -> float:
    """Return the mean number of labels in a set."""
    return float(_sets(sets).sum(axis=1).mean())


def false_negative_rate(sets: Any, truth: Any) -> float:
    """Return the mean share of a record's true labels that its set misses.

    Truth is (n, K), which labels are true. A record without any misses nothing.
    """
    found, true = _sets(sets), as_array(truth).astype(np.bool_)
    if true.shape != found.shape:
        raise BadInput(f"truth has shape {true.shape}; accepted is that of the sets, {found.shape}")
    return float(((true & ~found).sum(axis=1) / np.maximum(true.sum(axis=1), 1)).mean())


def mean_width(intervals: Any) -> float:
    """Return the mean width of intervals: an empty one has width 0, the whole line an infinite."""
    low, high = _intervals(intervals).T
    return float(np.maximum(high - low, 0.0).mean())


def class_coverage(sets: Any, labels: Any) -> NDArray[np.float64]:
    """Return the coverage of every class, (K,); NaN for a class without records."""
    covered, truth = _covered(sets, labels), as_array(labels)
    records = np.bincount(truth, minlength=_sets(sets).shape[1])
    hits = np.bincount(truth, weights=covered, minlength=len(records))
    return np.divide(hits, records, out=np.full(len(records), np.nan), where=records > 0)


def covgap(sets: Any, labels: Any, *, alpha: float) -> float:
    """Return the mean distance of a class's coverage to 1 - alpha (Ding et al. 2023).

    Classes without records do not count. The paper gives percent, this is a share.
    """
    check_probability("alpha", alpha)
    return float(np.nanmean(np.abs(class_coverage(sets, labels) - (1 - alpha))))


def size_stratified_coverage(
    sets: Any, labels: Any, *, edges: Sequence[int] = (1, 2, 4, 10, 100)
) -> list[Stratum]:
    """Return the coverage of records by the size of their sets (Angelopoulos et al. 2021).

    A stratum begins above one edge and ends at the next; strata without records are left out.
    """
    covered, sizes = _covered(sets, labels), _sets(sets).sum(axis=1)
    if list(edges) != sorted(set(edges)) or not edges:
        raise BadInput(f"edges are {tuple(edges)}; accepted are whole numbers that grow")
    highs = [*(edge for edge in edges if edge < sizes.max(initial=0)), int(sizes.max(initial=0))]
    found, low = [], 0
    for high in highs:
        chosen = (sizes >= low) & (sizes <= high)
        if chosen.any():
            found.append(Stratum(low, high, int(chosen.sum()), float(covered[chosen].mean())))
        low = high + 1
    return found


def group_coverage(predicted: Any, truth: Any, groups: Any) -> dict[Any, float]:
    """Return the coverage of every group, by its name: of owners, sexes, years."""
    covered, names = _covered(predicted, truth), as_array(groups)
    if names.shape != covered.shape:
        raise BadInput(
            f"groups have shape {names.shape}; accepted is one for each of {len(covered)} records"
        )
    return {name: float(covered[names == name].mean()) for name in np.unique(names).tolist()}


def _covered(predicted: Any, truth: Any) -> NDArray[np.bool_]:
    """Whether each record's truth is in its set or interval: sets are told by their booleans."""
    found, wanted = as_array(predicted), as_array(truth)
    if found.dtype == np.bool_:
        labels = check_labels(wanted, n=len(found), k=_sets(found).shape[1])
        return found[np.arange(len(found)), labels]
    low, high = _intervals(found).T
    if wanted.shape != low.shape:
        raise BadInput(
            f"truth has shape {wanted.shape}; accepted is one for each of {len(low)} records"
        )
    return (low <= wanted) & (wanted <= high)


def _sets(sets: Any) -> NDArray[np.bool_]:
    found = as_array(sets)
    if found.dtype != np.bool_ or found.ndim != 2 or not len(found):
        raise BadInput(
            f"sets have shape {found.shape} and type {found.dtype}; accepted are booleans, one row "
            "a record and one column a label"
        )
    return found


def _intervals(intervals: Any) -> NDArray[np.float64]:
    found = as_array(intervals)
    if found.dtype.kind not in "fiu" or found.ndim != 2 or found.shape[1] != 2 or not len(found):
        raise BadInput(
            f"intervals have shape {found.shape} and type {found.dtype}; accepted are two numbers "
            "a record, low and high"
        )
    return found.astype(np.float64)
