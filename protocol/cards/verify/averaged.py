"""Ranks and inflation of a mechanism whose coverage is averaged over its draws, a second time.

With the target t, and A of n scores below the bin that must be reached, a bin of weight w(d) that
ends d = t - A ranks before t is drawn instead of the one that holds t with probability at most
(m - 1) w(d) against w(0); at d <= 0 that is certain.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

from confide.protocol.cards.verify.tables import WEIGHT, both_sides, descent

# Probabilities are rounded up to parts of this many.
PARTS = 1 << 64


def marginal_rank(entry: dict[str, Any], *, alpha: Fraction) -> int | None:
    """The rank of rank-exponential at which misses, averaged over ranks, are at most alpha.

    Over A = 0..n these probabilities add up to at most n + 1 - t, for A >= t, the whole column of
    those for d = 1, 2, ... and t times the last one, which stands for all distances beyond.
    """
    column = [Fraction(part, PARTS) for part in _parts(entry)]
    last = column[-1]
    if last > alpha:
        return None
    return math.ceil(((1 - alpha) * (entry["n"] + 1) + sum(column)) / (1 - last))


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
