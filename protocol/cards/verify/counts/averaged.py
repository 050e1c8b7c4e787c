"""Ranks and inflation of a mechanism whose coverage is averaged over its draws, a second time.

With the target t, and A of n scores below the bin that must be reached, a bin of weight w(d) that
ends d = t - A ranks before t is drawn instead of the one that holds t with probability at most
(m - 1) w(d) against w(0); at d <= 0 that is certain.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
from scipy.special import betainc

from confide.protocol.cards.verify.counts.tables import WEIGHT, both_sides, descent

# Probabilities are rounded up to parts of this many.
PARTS = 1 << 64
# Above the relative error of tails in doubles.
ROUNDED = 1e-9


def averaged_rank(entry: dict[str, Any], *, alpha: Fraction, delta: float | None) -> int | None:
    """The rank of rank-exponential at which misses, averaged over ranks, are at most alpha.

    Over A = 0..n these probabilities add up to at most n + 1 - t, for A >= t, the whole column of
    those for d = 1, 2, ... and t times the last one, which stands for all distances beyond. With a
    delta it is the rank at which their mean over A ~ Bin(n, 1 - alpha) is at most delta.
    """
    column = [Fraction(part, PARTS) for part in _parts(entry)]
    last = column[-1]
    if last > alpha:
        return None
    if delta is not None:
        return _least(
            entry["n"], lambda t: _mean_failure(column, t, n=entry["n"], alpha=alpha), delta
        )
    return math.ceil(((1 - alpha) * (entry["n"] + 1) + sum(column)) / (1 - last))


def rare_rank(n: int, *, alpha: Fraction, delta: Fraction) -> int:
    """The least r that Bin(n, 1 - alpha) reaches with probability at most delta; n + 1: none."""
    return _least(n, lambda r: float(_reaches(r, n, alpha)), float(delta))


def _mean_failure(column: list[Fraction], t: int, *, n: int, alpha: Fraction) -> float:
    """The mean of G(A), by parts: G(0), and each step of G times the chance that A gets there."""
    steps = min(t, len(column))
    ascending = np.array([*(float(part) for part in reversed(column[:steps])), 1.0])
    tails = _reaches(np.arange(t - steps + 1, t + 1), n, alpha)
    return float(ascending[0] + np.diff(ascending) @ tails)


def _reaches(count: Any, n: int, alpha: Fraction) -> Any:
    """P(Bin(n, 1 - alpha) >= count), for counts from 1 to n."""
    return betainc(count, n - np.asarray(count) + 1.0, float(1 - alpha))


def _least(n: int, failure: Callable[[int], float], most: float) -> int:
    """The least rank from 1 to n at which a falling failure is at most `most`; n + 1: none."""
    left, right = 1, n + 1
    while left < right:
        middle = (left + right) // 2
        if failure(middle) <= most * (1 - ROUNDED):
            right = middle
        else:
            left = middle + 1
    return left


def mean_inflation(entry: dict[str, Any], *, rank: int) -> int:
    """Bound the mean of the ranks above the target: m - 1 bins at the worst one distance."""
    room, worst, weight = max(0, entry["n"] + 1 - rank), 0, WEIGHT
    high = both_sides(entry["epsilon_calibration"])[1]
    for distance, weight in enumerate(descent(WEIGHT, high, 1)):
        if distance > room:
            return worst
        worst = max(worst, _mean(distance, weight, entry["bins"]))
    return max(worst, _mean(room, weight, entry["bins"]))


def _mean(distance: int, weight: int, bins: int) -> int:
    against = weight * (bins - 1)
    return math.ceil(Fraction(distance * against, against + WEIGHT))


def _parts(entry: dict[str, Any]) -> Iterator[int]:
    """The probabilities for d = 1, 2, ..., in parts, rounded up."""
    low = both_sides(entry["epsilon_calibration"])[0]
    weights = descent(WEIGHT, low, 1)
    for weight in islice(weights, 1, None):
        against = weight * (entry["bins"] - 1)
        yield math.ceil(Fraction(PARTS * against, against + WEIGHT))
