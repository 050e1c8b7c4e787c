"""The exact noise-aware threshold: all n*k breakpoints of an estimate that is a difference of two step functions.

With G(q) the number of supported (record, label) pairs of score at most q and T(q) that of all pairs,

    Fc(q) = (G(q) - spill T(q)) / (n (hit - spill)),

the mean of X_i(q) over records. It is not monotone, so bisection may land on any crossing; wanted is the smallest
breakpoint from which on Fc stays at or above the target.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Counts = NDArray[np.int64]

_BUCKETS = 1 << 16
_CHUNK = 1 << 17


def noise_aware_threshold(scores: Array, supported: Array, *, goal: float, spill: float) -> float | None:
    """The smallest score q with G - spill T >= goal at q and at every larger score; None when it fails at the largest.

    Scores are counted in buckets; only buckets inside which the estimate might still dip below the goal are sorted.
    """
    flat = scores.reshape(-1)
    pairs, hits = _bucket_counts(flat), _bucket_counts(supported)
    pairs_end, hits_end = np.cumsum(pairs), np.cumsum(hits)
    pairs_start, hits_start = pairs_end - pairs, hits_end - hits
    if hits_end[-1] - spill * pairs_end[-1] < goal:
        return None
    doubtful = (hits_start - spill * pairs_end < goal) & (pairs > 0)
    short_at_end = np.flatnonzero((hits_end - spill * pairs_end < goal) & (pairs > 0))
    lowest = int(short_at_end[-1]) if short_at_end.size else 0
    for bucket in np.flatnonzero(doubtful)[::-1]:
        if bucket < lowest:
            break
        values = np.unique(_members(flat, bucket))
        total = pairs_start[bucket] + np.searchsorted(np.sort(_members(flat, bucket)), values, side="right")
        hit = hits_start[bucket] + np.searchsorted(np.sort(_members(supported, bucket)), values, side="right")
        short = np.flatnonzero(hit - spill * total < goal)
        if short.size and short[-1] + 1 < values.size:
            return float(values[short[-1] + 1])
        if short.size:
            return _next_above(flat, bucket, pairs)
    return float(flat.min())


def _bucket(scores: Array) -> Counts:
    return (scores * scores.dtype.type(_BUCKETS)).astype(np.int64)


def _bucket_counts(flat: Array) -> Counts:
    counts = np.zeros(_BUCKETS + 1, dtype=np.int64)
    for start in range(0, flat.size, _CHUNK):
        counts += np.bincount(_bucket(flat[start : start + _CHUNK]), minlength=_BUCKETS + 1)
    return counts


def _members(flat: Array, bucket: int) -> Array:
    """The scores that fall into a bucket: a cheap comparison first, the bucket's own arithmetic on what is left."""
    edge = flat.dtype.type
    near = flat[(flat >= edge(max(bucket - 1, 0) / _BUCKETS)) & (flat <= edge((bucket + 2) / _BUCKETS))]
    return near[_bucket(near) == bucket]


def _next_above(flat: Array, bucket: int, pairs: Counts) -> float:
    """The smallest score in a bucket above the given one; the caller knows there is one."""
    following = bucket + 1 + int(np.argmax(pairs[bucket + 1 :] > 0))
    return float(_members(flat, following).min())
