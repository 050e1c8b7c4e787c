"""Stages of a bits search in the normal limit, for many campaigns at once.

`confide.aggregator.procedures.certify.design_stage` with a normal instead of a binomial count of
ones: a stage passes at once from `stop` standard errors on, and otherwise leaves the chance that
the answers to come bring all of them to `pooled` standard errors.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]

_LEVELS = np.geomspace(1e-7, 0.7, 48)
_POINTS = 300


@cache
def _pooled(share: float, early: float) -> Floats:
    """The pooled critical values at `_LEVELS`; `share` is that of the stage among all answers."""
    now = ndtri((np.arange(_POINTS) + 0.5) / _POINTS)
    going = now < (-ndtri(_LEVELS * early) if early else np.full(len(_LEVELS), np.inf))[:, None]
    low, high = -ndtri(_LEVELS) - 1, np.full(len(_LEVELS), 9.0)
    for _ in range(40):
        middle = (low + high) / 2
        later = ndtr((now * math.sqrt(share) - middle[:, None]) / math.sqrt(1 - share))
        fits = _LEVELS * early + (later * going).mean(axis=1) <= _LEVELS
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return np.asarray(high)


def decided(
    shown: Floats, *, levels: Floats, early: Floats, n: int, rest: int
) -> tuple[NDArray[np.bool_], Floats]:
    """Which campaigns pass now, and the level that the others keep.

    `shown` are the ones above those expected at the target, in standard errors; `early` is the
    share of each level that is spent on passing at once.
    """
    safe = np.maximum(levels, 1e-300)
    if not rest:
        return shown >= -ndtri(safe), np.zeros(len(shown))
    share = n / (n + rest)
    pooled = np.empty(len(shown))
    for value in np.unique(early):
        here = early == value
        known = np.log(np.maximum(levels[here], _LEVELS[0]))
        pooled[here] = np.interp(known, np.log(_LEVELS), _pooled(share, float(value)))
    with np.errstate(divide="ignore"):
        passes = shown >= -ndtri(safe * early)
    left = ndtr((shown * math.sqrt(share) - pooled) / math.sqrt(1 - share))
    return passes & (early > 0), np.asarray(left)
