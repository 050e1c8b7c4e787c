"""Bisection by counts with discrete Gaussian noise: SCP Algorithm 2, and a midpoint search.

Privacy is zCDP: a count moves by at most 1 under either adjacency, so one query of variance v is
1/(2 v)-zCDP (Canonne, Kamath, Steinke 2020) and `steps` adaptive ones add up to rho. SCP states
mu-GDP, mu = sqrt(2 rho), for continuous noise; for the discrete noise drawn here only zCDP is
claimed.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np

from confide.aggregator.quantiles.base import ASYMPTOTIC, CERTIFIED, UNCERTIFIED, Mechanism, Privacy
from confide.aggregator.quantiles.histogram import Histogram
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.sampling import Entropy
from confide.protocol.privacy.zcdp import search_steps, zcdp_within

VARIANTS = ("F", "A")
# Doubles lose this much, relatively, over sums of positive terms.
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class _Bisection(Mechanism):
    rho: float
    needs_delta = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rho) and 1e-9 <= self.rho <= 1000):
            raise BadInput(f"rho is {self.rho!r}; it must be a finite number from 1e-9 to 1000")
        super().__post_init__()

    @property
    def steps(self) -> int:
        """Queries that halve `bins` bins down to one: ceil(log2(bins))."""
        return search_steps(self.bins)

    @cached_property
    def variance(self) -> Fraction:
        return Fraction(self.steps) / (2 * Fraction(self.rho))

    @property
    def privacy(self) -> Privacy:
        return Privacy(self.adjacency, rho=self.rho)

    def noisy_count(self, histogram: Histogram, at: int, entropy: Entropy) -> int:
        return int(histogram.cumulative[at]) + int(discrete_gaussian(self.variance, 1, entropy)[0])


@dataclass(frozen=True, kw_only=True)
class GaussianSearch(_Bisection):
    """Buffered right-endpoint search (SCP Algorithm 2).

    The right end moves to a bin whose noisy count reaches r + buffer + offset, otherwise the left
    end moves; the right end is returned.

    Variant F has the buffer and the offset, and is certified (SCP Lemma 1): the least offset with
    steps * P(Z > offset) <= beta for the discrete noise, where SCP has sigma z(1 - beta/N) - 1.
    Variant A has neither. The buffer is for scores of a model trained on the same records; what it
    is worth there is not certified here.
    """

    variant: str = "F"
    buffer: int = 0
    name = "gaussian-search"
    owners_can_noise = True

    @classmethod
    def within(cls, *, epsilon: float, delta: float, beta: float | None, **public: Any) -> Self:
        return cls(rho=zcdp_within(epsilon, delta), beta=beta, **public)

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise BadInput(f"variant is {self.variant!r}; accepted are {' and '.join(VARIANTS)}")
        if self.buffer < 0 or (self.variant == "A" and self.buffer):
            raise BadInput(
                f"buffer is {self.buffer} in variant {self.variant}; accepted is 0 or more in F, 0 "
                "in A"
            )
        super().__post_init__()

    @property
    def certificate(self) -> str:
        return CERTIFIED if self.variant == "F" else ASYMPTOTIC

    @cached_property
    def offset(self) -> int:
        if self.variant == "A":
            return 0
        # Twelve standard deviations hold all but e^-72 of the mass.
        x = np.arange(math.ceil(12 * math.sqrt(self.variance)) + 3)
        mass = np.exp(-(x**2) / (2 * float(self.variance)))
        tails = np.cumsum(mass[::-1])[::-1] / (2 * mass.sum() - 1)
        rare = self.steps * tails * (1 + _ROUNDING) <= float(self.failure)
        if not rare.any():
            # A beta beyond the table: discrete Gaussians are sub-Gaussian (Canonne, Kamath, Steinke
            # 2020).
            return math.ceil(
                math.sqrt(2 * float(self.variance) * math.log(self.steps / float(self.failure)))
                * (1 + _ROUNDING)
            )
        return max(0, int(np.argmax(rare)) - 1)

    def inflation(self, *, n: int, rank: int) -> int | None:
        """A bin with N_j >= r + buffer + 2 offset is passed over only by a noise below -offset."""
        return None if self.variant == "A" else self.buffer + 2 * self.offset

    def choose(self, histogram: Histogram, rank: int, entropy: Entropy) -> int:
        left, right = -1, self.bins - 1
        while right - left > 1:
            middle = (left + right) // 2
            reached = (
                self.noisy_count(histogram, middle, entropy) >= rank + self.buffer + self.offset
            )
            left, right = (left, middle) if reached else (middle, right)
        return right


@dataclass(frozen=True, kw_only=True)
class NoisyMidpoint(_Bisection):
    """Noisy midpoint search (SCP Algorithm 4): both ends move, and there is no offset.

    One false answer sends it below the quantile for good, so nothing is certified. It serves as a
    baseline.
    """

    name = "noisy-midpoint"

    @classmethod
    def within(cls, *, epsilon: float, delta: float, beta: float | None, **public: Any) -> Self:
        return cls(rho=zcdp_within(epsilon, delta), **public)

    @property
    def certificate(self) -> str:
        return UNCERTIFIED

    def choose(self, histogram: Histogram, rank: int, entropy: Entropy) -> int:
        left, right = 0, self.bins - 1
        while left < right:
            middle = (left + right) // 2
            below = self.noisy_count(histogram, middle, entropy) < rank
            left, right = (middle + 1, right) if below else (left, middle)
        return (left + right) // 2
