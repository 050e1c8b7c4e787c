"""Coverage averaged over the draws of a mechanism whose law depends on ranks alone.

A certificate with a beta says "the mechanism fails, or the conformal rank does", and pays for both
in full. Averaging pays for each draw by what it costs.

Setting. Bin j is drawn with a weight by the ranks it holds: the bin that holds the target t weighs
low(0), one that ends d >= 1 ranks before it low(d), and low does not increase. The last of the m
bins holds every rank above n as well, so some bin always weighs low(0).

Lemma. Let J be drawn from the counts of n scores, and b be a bin such that at most A of the scores
lie in bins below b. Then

    P(J < b) <= G(A),   G(A) = (m - 1) low(t - A) / ((m - 1) low(t - A) + low(0)),   G = 1 if A >= t

Proof. Let A < t. A bin j < b ends at rank N_j <= A, so it weighs low(t - N_j) <= low(t - A). It
does not hold t, and it is not the last one, so the bin that holds t is another one, of weight
low(0). The at most m - 1 bins below b thus have the share x / (x + low(0) + ...) with
x <= (m - 1) low(t - A), which grows with x. A histogram attains it: A scores in the first bin, the
others in the last. Ties change nothing: they only make N_j smaller than A.

Marginal. Take n + 1 exchangeable scores and order them, ties at random: the rank R of the test
score is uniform on 1..n+1. The scores in bins below its own come before it, so at most R - 1 of the
n others lie there, and it is missed only if J is below its bin:

    miss <= sum over A = 0..n of G(A) / (n + 1).

With g(d) = G(t - d), decreasing to g(last), and C the sum of g over the table from d = 1 on, the
sum is at most n + 1 - t + C + t g(last) for every t <= n + 1. So coverage is 1 - alpha or more if

    t (1 - g(last)) >= (1 - alpha)(n + 1) + C,

and the least such t is taken. Beyond the table's length nothing was lost by that; each g is
rounded up to a multiple of 2^-64, and the rest is exact. While g(last) <= alpha, t rises by 0 or 1
with every record, as neighbours under add-remove need.

PAC. Let the scores be independent, and b the first bin whose right edge covers 1 - alpha or more.
The released edge covers less only if J < b. The scores below b are A ~ Bin(n, p), p < 1 - alpha,
and G does not decrease, so the calibration and the draw together fail with probability at most

    E G(A) for A ~ Bin(n, 1 - alpha),

and the least t with this at most delta is taken.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from confide.aggregator.quantiles.histogram import ROUNDING
from confide.protocol.privacy.binomial import above, below, masses

# The losses g(d) are whole multiples of one part in so many.
UNIT = 1 << 64


@dataclass(frozen=True, eq=False)
class Losses:
    """The worst probabilities g(1), g(2), ... of a bin too low, by the table of weights."""

    low: list[int]
    bins: int

    @cached_property
    def units(self) -> list[int]:
        """g(d) for d = 1, 2, ..., in units, rounded up; the last value holds for all larger d."""
        others = [(self.bins - 1) * weight for weight in self.low[1:] or self.low]
        return [-(-UNIT * weight // (weight + self.low[0])) for weight in others]

    @cached_property
    def total(self) -> int:
        """The sum of g(1), g(2), ..., in units: C of the module's bound."""
        return sum(self.units)

    def reaches(self, alpha: float | Fraction) -> bool:
        """Whether a target far enough above all records misses less often than alpha."""
        return self.units[-1] <= UNIT * Fraction(str(alpha))

    def marginal_rank(self, *, n: int, alpha: float | Fraction) -> int:
        """The least target t whose bound gives marginal coverage 1 - alpha, above n or not."""
        needed = (1 - Fraction(str(alpha))) * (n + 1) * UNIT + self.total
        return math.ceil(needed / (UNIT - self.units[-1]))

    def pac_rank(self, *, n: int, alpha: float | Fraction, delta: float) -> int:
        """The least target t of n records with E G(A) <= delta, rounded up; n + 1 without one."""
        low, high = 0, n + 1
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._failure(middle, n, 1 - float(alpha)) * (1 + ROUNDING) <= delta
            low, high = (low, middle) if fits else (middle, high)
        return high

    def _failure(self, t: int, n: int, p: float) -> float:
        """E G(A) for A ~ Bin(n, p): the upper tail, the table by masses, and what lies below it."""
        near = np.array(self.units[: min(t, len(self.units))], dtype=np.float64) / UNIT
        reached = float(masses(t - 1 - np.arange(len(near)), n, p) @ near)
        rest = float(below(t - len(near), n, p)) * self.units[-1] / UNIT
        return float(above(t - 1, n, p)) + reached + rest
