"""The tests behind the certificates.

All are one-sided tests of H: F(q) < 1 - alpha. A threshold is certified when H is rejected for it;
because the hypotheses are nested (F grows with q), walking down a ladder and stopping at the first
threshold that is not rejected needs no correction for the number of rungs.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from confide.protocol.certificate import BitRung
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput
from confide.protocol.privacy.binomial import above, masses, upper_quantile

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

# The highest level at which unequal trials are tested.
MOST_UNEQUAL = 0.25

# Binomial tails are computed in doubles; a tail is believed to be this much larger than what scipy
# returns.
_TAIL_ERROR = 1e-9
# The share of its level that a threshold keeps after any stage but the last, so that a campaign
# which asked too low can still certify something.
KEEP = 0.06
# The share of a stage's level spent on passing at once instead of on the pooled count: what makes
# going down possible. While nothing is certified, passing at once is worth more.
EARLY, EARLY_FIRST = 0.25, 0.4


def tail(ones: int, n: int, m0: float) -> float:
    """P(Bin(n, m0) >= ones), rounded up.

    This is the level at which so many ones reject a rate of at most m0.
    """
    return 1.0 if ones <= 0 else min(1.0, float(above(ones - 1, n, m0)) * (1 + _TAIL_ERROR))


def critical(level: float, n: int, m0: float) -> int:
    """The smallest number of ones whose tail is at most the level; n + 1 when none is."""
    if level >= 1:
        return 0
    ones = max(0, upper_quantile(level, n, m0) - 1)
    while ones <= n and tail(ones, n, m0) > level:
        ones += 1
    return ones


@dataclass(frozen=True)
class Stage:
    """A stage of a sequential binomial test: n answers now, about `rest` later.

    False rejections have probability at most `level` in all.

    `level_after(ones)` is the conditional probability of a false rejection that the stages to come
    may use. It is 1 (the rate is rejected at once) from `stop` ones on; below, it is the chance
    that `rest` more answers at rate m0 bring the pooled count to `pooled`, at least `kept` and at
    most `most`. Its mean at rate m0 is at most `level`, and it grows with `ones`, so the bound
    holds for every smaller rate. Whatever is decided after looking, testing the next stage at
    `level_after` keeps the total at `level` (the conditional rejection probability principle of
    Mueller & Schaefer 2004).
    """

    n: int
    rest: int
    level: float
    m0: float
    stop: int
    pooled: int
    kept: float = 0.0
    most: float = 1.0

    def level_after(self, ones: int) -> float:
        if ones >= self.stop:
            return 1.0
        if self.rest == 0:
            return 0.0
        return min(self.most, max(self.kept, tail(self.pooled - ones, self.rest, self.m0)))


def design_stage(
    *, n: int, rest: int, level: float, m0: float, early: float, unequal: bool = False
) -> Stage:
    """Give the share `early` of the level to rejecting at once, the rest to the pooled count.

    The share `KEEP` of the level is left in any case.

    `unequal` answers are independent with rates of at most m0 on average. Their sum has no heavier
    tail than the binomial one at counts from the mean + 1 on (Hoeffding 1956), where a tail of at
    most 1/4 begins (Greenberg and Mohri 2014). That bounds two tails one by one, not together, so
    the level is divided: between rejecting at once, what is kept, and the pooled count. It must be
    at most 1/4, and so is what a stage leaves.
    """
    if rest == 0 or level >= 1:
        return Stage(n, rest, level, m0, stop=critical(level, n, m0), pooled=0)
    stop = critical(level * early, n, m0)
    if unequal:
        pooled = critical(level * (1 - KEEP) - tail(stop, n, m0), n + rest, m0)
        kept = KEEP * level
        return Stage(n, rest, level, m0, stop=stop, pooled=pooled, kept=kept, most=MOST_UNEQUAL)
    spread = 9 * math.sqrt(n * m0 * (1 - m0)) + 9
    counts = np.arange(max(0, int(n * m0 - spread)), min(n, int(n * m0 + spread)) + 1)
    chances = masses(counts, n, m0)
    # Counts beyond nine standard deviations are left out; their mass is charged in full.
    outside = max(0.0, 1.0 - float(chances.sum()))
    now = tail(stop, n, m0)
    going, kept = counts < stop, KEEP * level
    counts, chances = counts[going], chances[going]

    def spent(later: Floats) -> float:
        return (now + float(chances @ np.maximum(later, kept)) + outside) * (1 + _TAIL_ERROR)

    most = n + rest + 1
    if spent(np.zeros(len(counts))) > level:
        # A level too small for doubles: nothing is left of it.
        return Stage(n, rest, level, m0, stop=stop, pooled=most)
    tails = _Tails(rest, m0)

    def enough(pooled: int) -> bool:
        return spent(tails.above(pooled - 1 - counts)) <= level

    low, step = critical(level, n + rest, m0) - 1, max(1, len(counts) // 64)
    while low + step < most and not enough(low + step):
        low, step = low + step, 2 * step
    high = min(low + step, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Stage(n, rest, level, m0, stop=stop, pooled=high, kept=kept)


class _Tails:
    """P(Bin(n, p) > k), computed once for every k between the least and the greatest asked."""

    def __init__(self, n: int, p: float) -> None:
        self._n, self._p = n, p
        self._first, self._known = 0, np.empty(0)

    def above(self, counts: Counts) -> Floats:
        """The tails at counts that fall by one each; those of another call are next to them."""
        if not len(counts):
            return np.empty(0)
        first, last = int(counts[-1]), int(counts[0]) + 1
        if not len(self._known):
            self._first = first
        end = self._first + len(self._known)
        lower, higher = np.arange(first, self._first), np.arange(end, last)
        parts = (above(lower, self._n, self._p), self._known, above(higher, self._n, self._p))
        self._first, self._known = min(first, self._first), np.concatenate(parts)
        return self._known[first - self._first : last - self._first][::-1].copy()


def null_rate(channel: Bit, alpha: float) -> float:
    """The share of ones that reports show at coverage 1 - alpha, rounded up."""
    return math.nextafter(float(channel.observed(1 - Fraction(alpha))), 1.0)


class Stages(Protocol):
    """What stages test: the lowest threshold certified, and whether that is the end."""

    @property
    def certified(self) -> float: ...

    @property
    def finished(self) -> bool: ...


def check_stage(stages: Stages, threshold: float) -> None:
    """Refuse a stage at a threshold that cannot be certified any more, or is already."""
    if stages.finished or not 0 <= threshold < stages.certified:
        raise BadInput(
            f"threshold {threshold} cannot be tested; accepted is 0 up to below "
            f"{stages.certified}, while a level is left"
        )


class Search:
    """Which thresholds may still be tested by bits, at which level, and what has been certified.

    Every threshold below what is certified has a level of its own, delta to begin with. A stage on
    fresh answers at q moves the level of q and of all thresholds above, whose coverage is no less:
    for each of them it is a stage of a test at that level. A threshold is certified once its level,
    and that of all above, has reached 1. Under H: F(q) < 1 - alpha the level of q is a
    supermartingale, whatever decides where to ask next, so it reaches 1 with probability at most
    delta; something false is certified only if that happens to the false thresholds next to the
    true quantile. A level that has reached 1 stays there.

    If answers are `unequal`, as those of a mixture of owners, levels below 1 are at most 1/4.
    """

    def __init__(
        self, *, delta: float, m0: float, max_corrupt: int = 0, unequal: bool = False
    ) -> None:
        self.delta = min(delta, MOST_UNEQUAL) if unequal else delta
        self.null, self._corrupt, self._unequal = m0, max_corrupt, unequal
        # Thresholds asked and not certified, ascending: each holds up to the next.
        self._asked: list[float] = []
        self._levels: list[float] = []
        self.certified = 1.0

    @property
    def tests(self) -> "Sequence[tuple[float, Search]]":
        """The tests of a stage, each with the coverage by which its target is above the plan's."""
        return [(0.0, self)]

    @property
    def floor(self) -> float:
        """The lowest threshold that was asked and is not certified; 0 if there is none."""
        return self._asked[0] if self._asked else 0.0

    @property
    def failed(self) -> bool:
        """Whether a threshold was asked and is not certified."""
        return bool(self._asked)

    @property
    def finished(self) -> bool:
        """Whether nothing more can be certified."""
        return self.certified == 0.0 or bool(self._levels and self._levels[-1] == 0.0)

    @property
    def early(self) -> float:
        """The share of its level that a stage spends on passing at once."""
        return EARLY_FIRST if self.certified >= 1 else EARLY

    def level(self, threshold: float) -> float:
        """The least level among this threshold and those above it that are not certified."""
        return min(self._own(threshold), *self._levels[bisect_right(self._asked, threshold) :], 1.0)

    def _own(self, threshold: float) -> float:
        """The level of this threshold."""
        i = bisect_right(self._asked, threshold)
        return self._levels[i - 1] if i else self.delta

    def test(self, threshold: float, *, n: int, ones: int, rest: int) -> BitRung:
        """Test a threshold on n fresh answers, with about `rest` to come.

        Each corrupt answer may be a one that should be a zero.

        `rest` must be fixed before `ones` is seen, as the threshold must.
        """
        check_stage(self, threshold)
        level, honest = self.level(threshold), max(0, ones - self._corrupt)
        i = bisect_left(self._asked, threshold)
        if threshold not in self._asked:
            self._levels.insert(i, self._own(threshold))
            self._asked.insert(i, threshold)
        stage = partial(
            design_stage, n=n, rest=rest, m0=self.null, early=self.early, unequal=self._unequal
        )
        for j in range(i, len(self._asked)):
            self._levels[j] = stage(level=self._levels[j]).level_after(honest)
        rung = BitRung(threshold, n, ones, rest, level, min(self._levels[i:]))
        if rung.passed:
            self.certified = threshold
            del self._asked[i:], self._levels[i:]
        return rung
