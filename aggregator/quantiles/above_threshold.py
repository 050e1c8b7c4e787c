"""Sparse vector over the ascending grid: the first noisy count that reaches a noisy threshold."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.quantiles.base import Privacy, PureMechanism
from confide.aggregator.quantiles.histogram import Histogram
from confide.aggregator.quantiles.noise import ONE, LaplaceTail, two_sided_geometric
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import Entropy

# Doubles lose this much, relatively, over sums of positive terms.
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class AboveThreshold(PureMechanism):
    """The first bin with N_j + Z_j >= r + offset + Y; the last bin if there is none.

    Z_j and Y are discrete Laplace noise of scale 2/epsilon.

    Privacy (Lyu, Su, Li 2017, for counts that all move one way, and c = 1). Given Y = y, bin j
    answers with probability prod_{i<j} (1 - Q(T + y - N_i)) Q(T + y - N_j), Q(x) = P(Z >= x), T = r
    + offset. Let all N_i - r rise by 0 or 1 and compare y with y + 1: the arguments before j do not
    fall, so the bits before j stay off at least as likely; the argument at j rises by at most 1, a
    factor E in Q; y + 1 is rarer than y by at most 1/p. Let them fall by 0 or 1 and compare y with
    itself: the bits before j stay off more likely, the argument at j rises by at most 1. Every
    outcome moves by at most E/p <= e^epsilon. Counts that could move both ways would need twice the
    scale on Z.

    Guarantee. Among bins with N_j <= r - 1 one answers with probability at most that of B - 1 bins
    at N_j = r - 1: `offset`.
    """

    name = "above-threshold"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._failure_within(self.bins - 1, 2 * self._reach) > self.failure:
            raise self.unreachable()

    @cached_property
    def noise(self) -> LaplaceTail:
        return LaplaceTail(exp_below(self.epsilon / 2))

    @cached_property
    def numerator(self) -> int:
        """2^64 p, rounded up; p >= e^(-epsilon/2) is the ratio of Y's geometric law."""
        return -(-ONE * self.noise.ratio.denominator // self.noise.ratio.numerator)

    @cached_property
    def privacy(self) -> Privacy:
        return Privacy(
            self.adjacency, epsilon=log_up(Fraction(ONE, self.numerator) * self.noise.worst)
        )

    @property
    def _reach(self) -> int:
        return len(self.noise.tail)

    @cached_property
    def _shifts(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Values of Y and their probabilities; what is left out is charged with the last."""
        p = self.numerator / ONE
        y = np.arange(-self._reach, self._reach + 1)
        mass = (1 - p) / (1 + p) * p ** np.abs(y)
        mass[[0, -1]] += p ** (self._reach + 1) / (1 + p)
        return y, mass

    def _failure_within(self, count: int, offset: int) -> float:
        """P(some of `count` bits Z_i >= offset + 1 + Y is on), rounded up.

        A Y below the table counts as a failure.
        """
        y, mass = self._shifts
        q = self.noise.numerators(offset + 1 + y) / ONE
        some = -np.expm1(count * np.log1p(-np.minimum(q, 1 - 1e-16)))
        some[0] = 1.0
        return float(mass @ some) * (1 + _ROUNDING)

    def offset(self, count: int) -> int:
        """The least offset at which `count` bins one short of the rank all stay silent.

        That fails with probability at most beta.
        """
        low, high = -1, 2 * self._reach
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (low, middle)
                if self._failure_within(count, middle) <= self.failure
                else (middle, high)
            )
        return high

    @cached_property
    def raised(self) -> int:
        return self.offset(self.bins - 1)

    @cached_property
    def _single(self) -> int:
        return self.offset(1)

    def inflation(self, *, n: int, rank: int) -> int:
        """The first bin with N_j >= r + raised + offset(1) answers, if none did before.

        That fails only if Z_j - Y < -offset(1).
        """
        return self.raised + self._single

    def choose(self, histogram: Histogram, rank: int, entropy: Entropy) -> int:
        level = rank + self.raised + two_sided_geometric(self.numerator, entropy)
        answers = self.noise.exceeds(level - histogram.cumulative[:-1], entropy)
        return int(np.argmax(answers)) if answers.any() else self.bins - 1

    def law(self, histogram: Histogram, rank: int) -> list[Fraction]:
        """A sum over Y, in integers over a common denominator.

        From |Y| = reach on no bit depends on Y any more, so the two ends are summed in closed form:
        P(Y = y) = (1 - p)/(1 + p) p^|y| and P(Y >= reach) = p^reach/(1 + p).
        """
        self.check(histogram, rank)
        p, level = self.numerator, rank + self.raised
        reach = self._reach + level + histogram.n
        sums = [0] * self.bins
        for y in range(-reach, reach + 1):
            mass = (
                ONE * p**reach
                if abs(y) == reach
                else (ONE - p) * p ** abs(y) * ONE ** (reach - abs(y))
            )
            answers = self.noise.numerators(level + y - histogram.cumulative[:-1]).tolist()
            for j, answer in enumerate(answers):
                sums[j] += mass * answer
                mass *= ONE - answer
            sums[-1] += mass
        whole = (ONE + p) * ONE**reach
        return [
            Fraction(total, whole * ONE ** min(j + 1, self.bins - 1))
            for j, total in enumerate(sums)
        ]
