"""The tests behind the certificates.

All are one-sided tests of H: F(q) < 1 - alpha. A threshold is certified when H is rejected for it;
because the hypotheses are nested (F grows with q), walking down a ladder and stopping at the first
threshold that is not rejected needs no correction for the number of rungs.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from confide.protocol.certificate import BitRung
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput
from confide.protocol.privacy.binomial import above, masses, upper_quantile

# The highest level at which unequal trials are tested.
MOST_UNEQUAL = 0.25

# Binomial tails are computed in doubles; a tail is believed to be this much larger than what scipy
# returns.
_TAIL_ERROR = 1e-9


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
    that `rest` more answers at rate m0 bring the pooled count to `pooled`. Its mean at rate m0 is
    at most `level`, and it grows with `ones`, so the bound holds for every smaller rate. Whatever
    is decided after looking, testing the next stage at `level_after` keeps the total at `level`
    (the conditional rejection probability principle of Mueller & Schaefer 2004).
    """

    n: int
    rest: int
    level: float
    m0: float
    stop: int
    pooled: int

    def level_after(self, ones: int) -> float:
        if ones >= self.stop:
            return 1.0
        if self.rest == 0:
            return 0.0
        return tail(self.pooled - ones, self.rest, self.m0)


def design_stage(
    *, n: int, rest: int, level: float, m0: float, early: float, unequal: bool = False
) -> Stage:
    """Give the share `early` of the level to rejecting at once, the rest to the pooled count.

    `unequal` answers are independent with rates of at most m0 on average. Their sum has no heavier
    tail than the binomial one at counts from the mean + 1 on (Hoeffding 1956), where a tail of at
    most 1/4 begins (Greenberg and Mohri 2014). That bounds two tails one by one, not together, so
    the two shares of the level are added.
    """
    if rest == 0:
        return Stage(n, 0, level, m0, stop=critical(level, n, m0), pooled=0)
    stop = critical(level * early, n, m0)
    if unequal:
        left = level - tail(stop, n, m0)
        return Stage(n, rest, level, m0, stop=stop, pooled=critical(left, n + rest, m0))
    spread = 9 * math.sqrt(n * m0 * (1 - m0)) + 9
    counts = np.arange(max(0, int(n * m0 - spread)), min(n, int(n * m0 + spread)) + 1)
    chances = masses(counts, n, m0)
    # Counts beyond nine standard deviations are left out; their mass is charged in full.
    outside = max(0.0, 1.0 - float(chances.sum()))
    now = tail(stop, n, m0)
    going = counts < stop

    def spent(pooled: int) -> float:
        later = above(pooled - 1 - counts[going], rest, m0)
        return (now + float(chances[going] @ later) + outside) * (1 + _TAIL_ERROR)

    low, high = critical(level, n + rest, m0) - 1, n + rest + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if spent(middle) <= level else (middle, high)
    return Stage(n, rest, level, m0, stop=stop, pooled=high)


def null_rate(channel: Bit, alpha: float) -> float:
    """The share of ones that reports show at coverage 1 - alpha, rounded up."""
    return math.nextafter(float(channel.observed(1 - Fraction(alpha))), 1.0)


class Search:
    """Which thresholds may still be tested by bits, at which level, and what has been certified.

    Each stage is tested on fresh answers. After a pass the search goes down and has its whole level
    again; after a stage that did not pass, thresholds may only rise and have the level that stage
    left; once risen, the search ends with the next pass. The first threshold below the true
    quantile is therefore tested at the level the search began with, from then on the levels are a
    supermartingale until the search has left that region for good: something false passes with
    probability at most that level.

    A share `reserve` of delta is kept for a second search, of the same rules, which begins once the
    first has ended or has less level left than the reserve. It may ask anywhere below what is
    certified. Something false passes in one of the two with probability at most delta.

    If answers are `unequal`, as those of a mixture of owners, no stage is tested above level 1/4.
    """

    # Shares of a stage's level spent on passing at once instead of on the pooled count: what makes
    # going down possible. While nothing is certified, passing at once is worth more.
    EARLY, EARLY_FIRST = 0.25, 0.5

    def __init__(
        self,
        *,
        delta: float,
        m0: float,
        max_corrupt: int = 0,
        reserve: float = 0.0,
        unequal: bool = False,
    ) -> None:
        self._unequal = unequal
        self._reserve = reserve * delta
        self._delta, self.null, self._corrupt = delta - self._reserve, m0, max_corrupt
        self._risen = False
        self._failed: float | None = None
        self.level = self._delta
        self.certified = 1.0
        self.finished = False

    @property
    def floor(self) -> float:
        """The lowest threshold that may be tested next."""
        return 0.0 if self._failed is None else self._failed

    @property
    def failed(self) -> bool:
        """Whether the last stage did not pass and its level is carried on."""
        return self._failed is not None

    @property
    def second(self) -> bool:
        """Whether the reserve is spent."""
        return self._reserve == 0.0

    def early(self, threshold: float) -> float:
        """The share of the level that a stage at this threshold spends on passing at once."""
        if self._risen or (self._failed is not None and threshold > self._failed):
            return 0.0
        return self.EARLY_FIRST if self.certified >= 1 else self.EARLY

    def test(self, threshold: float, *, n: int, ones: int, rest: int) -> BitRung:
        """Test a threshold on n fresh answers, with about `rest` to come.

        Each corrupt answer may be a one that should be a zero.

        `rest` must be fixed before `ones` is seen, as the threshold must.
        """
        if self.finished or not self.floor <= threshold < self.certified:
            raise BadInput(
                f"threshold {threshold} cannot be tested; accepted is {self.floor} up to below "
                f"{self.certified}"
            )
        early = self.early(threshold)
        self._risen |= self._failed is not None and threshold > self._failed
        level = min(self.level, MOST_UNEQUAL) if self._unequal else self.level
        stage = design_stage(
            n=n, rest=rest, level=level, m0=self.null, early=early, unequal=self._unequal
        )
        after = stage.level_after(max(0, ones - self._corrupt))
        rung = BitRung(threshold, n, ones, rest, level, after)
        if rung.passed:
            self.certified, self.level, self._failed = threshold, self._delta, None
            self.finished = self._risen
        else:
            self.level, self._failed = rung.level_after, threshold
            self.finished = self.level == 0.0
        if self.finished or self.level < self._reserve:
            self._begin_again()
        return rung

    def _begin_again(self) -> None:
        """Begin the second search, if there is one to begin."""
        if self._reserve:
            self._delta = self.level = self._reserve
            self._reserve, self._failed, self._risen, self.finished = 0.0, None, False, False
