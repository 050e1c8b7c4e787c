"""Integer weights for exponential mechanisms, and the choice of a bin by them.

A table of integers g(0) >= g(1) >= ... >= 1 with g(d)/g(d + 1) <= E is made by g(d + 1) =
ceil(g(d)/E): rounded up, the private side. It ends where it stops falling; from there on it is
constant, which is private too. No exponential is evaluated when a bin is drawn, so what is drawn
has exactly the law that these integers spell.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy, Integers, uniform

# At most 2^20 bins of this weight fit the 62 bits of an exact uniform draw.
START = 1 << 40
MOST_ENTRIES = 1 << 22

Table = NDArray[np.int64]


def falling(start: int, ratio: Fraction, *, floor: int = 1, most: int = MOST_ENTRIES) -> list[int]:
    """start, ceil(start/ratio), ... while it falls, down to the floor, at most `most` entries."""
    if most == MOST_ENTRIES and math.log(start / floor) > most * math.log(ratio):
        raise BadInput(f"a margin of more than {most} ranks; accepted is a larger epsilon")
    up, down = ratio.numerator, ratio.denominator
    table = [start]
    while table[-1] > floor and len(table) < most:
        following = -(-table[-1] * down // up)
        if following == table[-1]:
            break
        table.append(following)
    return table


def worst_ratio(table: list[int]) -> Fraction:
    """The largest g(d)/g(d + 1)."""
    above, below = 1, 1
    for a, b in itertools.pairwise(table):
        if a * below > above * b:
            above, below = a, b
    return Fraction(above, below)


def bin_weights(cumulative: Integers, target: int, *, low: Table, after: Table) -> Integers:
    """The weight of every bin, by how far the ranks it holds are from the target.

    low[d] for N_j = target - d, d >= 1; low[0] for the one bin that holds the target; after[d] for
    N_{j-1} = target + d. The last bin counts as holding every rank from N_{m-1} + 1 on, so that
    some bin always holds the target.
    """
    holder = int(np.searchsorted(cumulative[:-1], target))
    # Counts grow with j, so the bins beyond either table's end are a run at either end of the grid.
    first = int(np.searchsorted(cumulative[:holder], target - len(low) + 1))
    last = holder + int(
        np.searchsorted(cumulative[holder:-1], target + len(after) - 1, side="right")
    )
    weights = np.empty(len(cumulative), dtype=np.int64)
    weights[:first] = low[-1]
    weights[first:holder] = low[target - cumulative[first:holder]]
    weights[holder] = low[0]
    weights[holder + 1 : last + 1] = after[cumulative[holder:last] - target]
    weights[last + 1 :] = after[-1]
    return weights


def pick(weights: Integers, entropy: Entropy) -> int:
    """A bin with probability exactly weight / total."""
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, uniform(int(sums[-1]), 1, entropy)[0], side="right"))


def exact_law(weights: Integers) -> list[Fraction]:
    total = int(weights.sum())
    return [Fraction(int(weight), total) for weight in weights]


def margin(table: list[int], *, bins: int, beta: Fraction) -> int | None:
    """The least d at which all bins of weight g(d) together win with probability <= beta.

    `bins - 1` bins of weight g(d) or less stand against one of weight g(0).

    b g(d) / (b g(d) + g(0)) <= beta for b = bins - 1: no histogram does worse, because some bin
    always has weight g(0), and one that puts b bins at distance d attains it. None when the table's
    floor is too high for this beta.
    """
    share = beta / (1 - beta) * table[0] / (bins - 1)
    return next((d for d, weight in enumerate(table) if weight <= share), None)
