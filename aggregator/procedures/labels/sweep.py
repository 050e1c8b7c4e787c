"""The exact noise-aware threshold: a search over all n*k breakpoints of an estimate.

The estimate is a difference of two step functions.

With G(q) the number of supported (record, label) pairs of score at most q and T(q) that of all
pairs,

    Fc(q) = (G(q) - spill T(q)) / (n (hit - spill)),

the mean of X_i(q) over records. It is not monotone, so bisection may land on any crossing; wanted
is the smallest breakpoint from which on Fc stays at or above the target.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Counts = NDArray[np.int64]

# Buckets are finer towards 1, where scores of wrong labels crowd: 2^10 an octave of 1 + 2^-40 -
# score.
_CEILING = 1 + 2.0**-40
_SHIFT = 52 - 10
_LOWEST = (1023 - 40) << 10
BUCKETS = (41 << 10) + 1
_CHUNK = 1 << 16


def noise_aware_threshold(
    scores: Array, supported: Array, *, goal: float, spill: float
) -> float | None:
    """The smallest score q with G - spill T >= goal at q and at every larger score.

    None when the condition fails at the largest score.

    Scores are counted in buckets; only buckets inside which the estimate might still dip below the
    goal are sorted.
    """
    flat = scores.reshape(-1)
    pairs, hits = _bucket_counts(flat), _bucket_counts(supported)
    pairs_end, hits_end = np.cumsum(pairs), np.cumsum(hits)
    if hits_end[-1] - spill * pairs_end[-1] < goal:
        return None
    filled = np.flatnonzero(pairs)
    short_at_end = filled[(hits_end - spill * pairs_end)[filled] < goal]
    doubtful = filled[(hits_end - hits - spill * pairs_end)[filled] < goal]
    doubtful = doubtful[doubtful >= (short_at_end[-1] if short_at_end.size else 0)]
    # With each the next filled one, in which the answer lies when a bucket is short to its end.
    after = np.searchsorted(filled, doubtful, side="right")
    wanted = np.zeros(BUCKETS, dtype=np.bool_)
    wanted[doubtful] = wanted[filled[after[after < filled.size]]] = True
    inside, hits_inside = _members(flat, wanted), _members(supported, wanted)
    last = np.flatnonzero(np.append(inside[1:] != inside[:-1], True)[: inside.size])
    values = inside[last]
    bucket = bucket_of(values)
    total = last + 1 + np.cumsum(np.where(wanted, 0, pairs))[bucket]
    hit = np.cumsum(np.bincount(np.searchsorted(values, hits_inside), minlength=values.size))
    short = np.flatnonzero(
        hit + np.cumsum(np.where(wanted, 0, hits))[bucket] - spill * total < goal
    )
    return float(values[short[-1] + 1]) if short.size else float(flat.min())


def bucket_of(scores: Array) -> Counts:
    """The number of a score's bucket, which grows with the score.

    It consists of the exponent and the first bits of the distance to 1.
    """
    key = (_CEILING - scores.astype(np.float64, copy=False)).view(np.int64)
    key >>= _SHIFT
    return np.subtract(_LOWEST + BUCKETS - 1, key, out=key)


def _bucket_counts(flat: Array) -> Counts:
    counts = np.zeros(BUCKETS, dtype=np.int64)
    for start in range(0, flat.size, _CHUNK):
        counts += np.bincount(bucket_of(flat[start : start + _CHUNK]), minlength=BUCKETS)
    return counts


def _members(flat: Array, wanted: NDArray[np.bool_]) -> Array:
    """The scores in the wanted buckets, sorted."""
    parts = (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))
    return np.sort(np.concatenate([part[np.take(wanted, bucket_of(part))] for part in parts]))
