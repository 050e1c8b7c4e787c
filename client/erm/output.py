"""Output perturbation: the minimiser of a regularised risk, with exact noise on a lattice.

DPCP Lemma 8 with integers. One unit is a power of two, 2^32 to 2^33 of which make up the
sensitivity of `confide.client.erm.objective`. Weights proved to lie within a 2^12th of the
sensitivity of the minimiser are rounded to units, and discrete Gaussian noise is added to the
integers. Everything after is a function of these integers.

**Sensitivity of the integers.** Let S be the sensitivity in units, rounded up. For two data sets of
which one has a record more, minimisers are within S; each solution is within S/2^12 of its
minimiser; rounding p coordinates moves each solution by at most sqrt(p)/2. Dividing by a power of
two is exact, and so is rounding: integers stay below 2^53, because the minimiser is at most the
number of records times the sensitivity from 0 (its ridge term balances one gradient a record). So
the integers differ in norm by at most

    D = S + ceil(2 S/2^12) + ceil(sqrt(p)).

With sigma = z D this is a step of DP-SGD in which every record joins
(`confide.protocol.privacy.losses.SampledGaussian(z, 1, 1)`): an integer vector of sensitivity D >=
2^32 and discrete Gaussian noise.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from confide.client.erm.objective import Floats, Objective, check_rows
from confide.client.erm.solver import solve
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import Entropy, Integers

# A solution lies within the sensitivity over 2^_CLOSENESS of the minimiser.
_CLOSENESS = 12


@dataclass(frozen=True)
class OutputPerturbation:
    """The release of one minimiser."""

    objective: Objective

    @property
    def exponent(self) -> int:
        """The largest k for which a sensitivity is 2^32 units of 2^k or more."""
        square = self.objective.squared_sensitivity
        k = math.floor(math.log2(square) / 2) - (CLIP_UNITS.bit_length() - 1)
        # The logarithm is off by little, so the right power is this one or a neighbour.
        return max(j for j in (k - 1, k, k + 1) if square >= CLIP_UNITS**2 * _power(2 * j))

    @property
    def moved(self) -> int:
        """S: how far one record moves the minimiser, in units, rounded up."""
        return _root_up(self.objective.squared_sensitivity / _power(2 * self.exponent))

    @property
    def sensitivity(self) -> int:
        """D: how far one record moves the integers that get the noise."""
        slack = -(-2 * self.moved >> _CLOSENESS)
        return self.moved + slack + _root_up(Fraction(self.objective.columns))

    def integers(self, rows: Floats, targets: Floats) -> Integers:
        """The solution in units; it must not leave without noise."""
        check_rows(rows, targets)
        within = math.ldexp(self.moved, self.exponent - _CLOSENESS)
        weights = solve(self.objective, rows, targets, within=within)
        return np.rint(np.ldexp(weights, -self.exponent)).astype(np.int64)

    def release(
        self, rows: Floats, targets: Floats, *, noise_multiplier: float, entropy: Entropy
    ) -> Floats:
        """Weights with noise of `noise_multiplier` sensitivities; 0 is for comparison only."""
        drawn = self.integers(rows, targets)
        if noise_multiplier:
            variance = (Fraction(noise_multiplier) * self.sensitivity) ** 2
            drawn = drawn + discrete_gaussian(variance, len(drawn), entropy)
        return np.ldexp(drawn.astype(np.float64), self.exponent)


def _power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def _root_up(square: Fraction) -> int:
    """The least integer at or above a square root."""
    whole = math.ceil(square)
    return math.isqrt(whole - 1) + 1 if whole > 0 else 0
