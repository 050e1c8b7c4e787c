"""What reports of labels pay at every rung of a ladder: the sums that betting tests need.

Walking down the ladder, a record's X changes only where a label leaves its set. All changes are
added up by rung and block in one pass over the reports; sums over the rungs give the rest.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.labels.betting import POWERS, Payoffs, block_ends
from confide.aggregator.procedures.labels.sweep import BUCKETS, bucket_of
from confide.aggregator.procedures.ladder import Ladder
from confide.protocol.channels.base import Array, LabelChannel
from confide.protocol.methods.labels.query import LabelTally

Floats = NDArray[np.float64]

# Pairs of record and label that are taken at once.
_PAIRS = 1 << 18


def x_range(channel: LabelChannel, largest: int = 0) -> tuple[float, float]:
    """The least and the greatest value of X (as in `SetValues`) over set sizes and reports."""
    scale, spill = float(channel.hit - channel.spill), float(channel.spill)
    ends = []
    for size in range(_counted(channel.k, largest) + 1):
        least, most = ((count - spill * size) / scale for count in channel.support_range(size))
        ends += [least, most, 1 - least, 1 - most]
    return min(ends), max(ends)


def _counted(k: int, largest: int) -> int:
    """The most labels of a set, or outside it, that X adds up."""
    return min(k // 2, largest) if largest else k // 2


@dataclass(frozen=True)
class SetValues:
    """The value X of a set by its number of labels, and how many of these a report supports.

    X is the sum of w(y) over the set. Where the set holds more than half of the labels its
    complement is summed instead, X = 1 - sum over the others: the same number for channels whose
    weights add up to 1, less variance for the others.

    With `largest`, a set of more labels than that, which also lacks more than that, counts as its
    `largest` best labels. Such sets are still nested and within the sets that are certified, and
    neither the range of X nor its variance grows with the number of labels.
    """

    channel: LabelChannel
    largest: int = 0

    def of(self, sizes: Array, supported: Array) -> Floats:
        """X where sets of these sizes hold so many supported labels.

        Both are (n, k + 1): a row a record, a column for each size from 0 to k.
        """
        k, most = self.channel.k, _counted(self.channel.k, self.largest)
        scale, spill = float(self.channel.hit - self.channel.spill), float(self.channel.spill)
        inside = (supported - spill * sizes) / scale
        outside = 1 - (supported[:, -1:] - supported - spill * (k - sizes)) / scale
        x = np.where(2 * sizes > k, outside, inside)
        if most < k - most - 1:
            x[:, most + 1 : k - most] = x[:, most : most + 1]
        return x


def at_level(
    payoffs: Payoffs, channel: LabelChannel, *, alpha: float, level: float, largest: int = 0
) -> Payoffs:
    """The payoffs at coverage 1 - level of the same reports, from those at 1 - alpha.

    They are a d + b, so their powers are sums of the powers of d.
    """
    low = x_range(channel, largest)[0]
    scale = 1 - level - low
    a, b = (1 - alpha - low) / scale, (level - alpha) / scale
    powers = [np.broadcast_to(payoffs.sizes, payoffs.sums.shape[1:]), *payoffs.sums]
    sums = [
        sum(math.comb(power, i) * a**i * b ** (power - i) * powers[i] for i in range(power + 1))
        for power in range(1, POWERS + 1)
    ]
    return Payoffs(np.stack(sums), payoffs.sizes, a * payoffs.most + b)


@dataclass
class Changes:
    """Sums of powers by the rung from which on, downwards, they hold, and by block."""

    rungs: int
    ends: NDArray[np.int64]

    def __post_init__(self) -> None:
        self.blocks = len(self.ends) - 1
        self.sums = np.zeros((POWERS, (self.rungs + 1) * self.blocks))
        self.filled = np.zeros(self.rungs + 1, dtype=np.bool_)

    def block_of(self, first: int, count: int) -> NDArray[np.int64]:
        places = np.arange(first, first + count)
        return np.searchsorted(self.ends, places, side="right") - 1

    def add(self, rungs: Array, blocks: Array, *, before: Floats, after: Floats) -> None:
        """Replace payoffs by others, below these rungs."""
        places = (rungs * self.blocks + blocks).reshape(-1)
        least = int(places.min(initial=self.sums.shape[1]))
        places -= least
        old, new = before, after
        for power in range(POWERS):
            added = np.bincount(places, weights=(new - old).reshape(-1))
            self.sums[power, least : least + len(added)] += added
            old, new = old * before, new * after
        self.filled |= np.bincount(rungs.reshape(-1), minlength=self.rungs + 1) > 0

    def below(self) -> tuple[NDArray[np.int64], Floats]:
        """The rungs below the top where something changes, from above, and the sums there.

        The highest is among them in any case.
        """
        rungs = np.arange(self.rungs - 2, -1, -1)
        rungs = rungs[self.filled[rungs + 1] | (rungs == self.rungs - 2)]
        # What changes at the top, and then below every rung that is kept.
        steps = np.concatenate([[self.rungs], rungs + 1])
        sums = self.sums.reshape(POWERS, self.rungs + 1, self.blocks)[:, steps]
        return rungs, np.cumsum(sums, axis=1)[:, 1:]


def coverage_payoffs(
    tally: LabelTally, channel: LabelChannel, *, ladder: Ladder, alpha: float, largest: int = 0
) -> tuple[list[float], Payoffs]:
    """The rungs below 1 from the top, and the payoffs X - (1 - alpha) there, scaled to [-1, most].

    Rungs at which no set changes are left out.
    """
    low, high = x_range(channel, largest)
    scale = 1 - alpha - low
    n, k = tally.scores.shape
    values, changes = SetValues(channel, largest), Changes(len(ladder), block_ends(n))
    table, step = RungTable(ladder), max(1, _PAIRS // k)
    sizes = np.arange(k + 1)[None, :]
    for first in range(0, n, step):
        part = slice(first, first + step)
        rungs, flags = _sorted(table.of(tally.scores[part]), channel.supports(tally.reports[part]))
        supported = np.zeros((len(rungs), k + 1), dtype=np.int32)
        np.cumsum(flags, axis=1, out=supported[:, 1:])
        d = (np.clip(values.of(sizes, supported), low, high) - (1 - alpha)) / scale
        blocks = changes.block_of(first, len(rungs))[:, None]
        top = np.full((len(rungs), 1), len(ladder))
        changes.add(top, blocks, before=np.zeros((len(rungs), 1)), after=d[:, -1:])
        changes.add(rungs, blocks, before=d[:, 1:], after=d[:, :-1])
    kept, sums = changes.below()
    return ladder[kept].tolist(), Payoffs(sums, np.diff(changes.ends), (high - (1 - alpha)) / scale)


class RungTable:
    """The rung of a score: the number of rungs below it.

    A table has the answer for all scores of a bucket that holds no rung; the others are searched.
    """

    def __init__(self, ladder: Ladder) -> None:
        own, every = bucket_of(ladder), np.arange(BUCKETS)
        below = np.searchsorted(own, every, side="left").astype(np.int32)
        searched = below != np.searchsorted(own, every, side="right")
        self._ladder, self._rungs = ladder, np.where(searched, np.int32(-1), below)

    def of(self, scores: Array) -> NDArray[np.int32]:
        flat = scores.reshape(-1).astype(np.float64, copy=False)
        rungs: NDArray[np.int32] = np.take(self._rungs, bucket_of(flat))
        open_ = np.flatnonzero(rungs < 0)
        rungs[open_] = np.searchsorted(self._ladder, flat[open_], side="left")
        return rungs.reshape(scores.shape)


def _sorted(rungs: Array, flags: Array) -> tuple[Array, Array]:
    """The rungs at which the labels of every record leave its set, ascending, and their flags.

    Labels of one rung stand in the order of their index, which is independent of the reports.
    """
    keys = (rungs.astype(np.uint32) << 16) | (np.arange(rungs.shape[1], dtype=np.uint32) << 1)
    keys |= flags
    keys.sort(axis=1)
    return (keys >> 16).astype(np.int64), (keys & 1).astype(np.bool_)
