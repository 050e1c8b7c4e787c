"""The exponential mechanisms of PPS (Algorithm 2) and DPCP (Algorithm 1), with exact weights.

PPS is Angelopoulos et al. 2022. Both draw edge e_j with weight exp(-epsilon w_j / (2 Delta)), w_j =
max(#{s < e_j}/q, #{s > e_j}/(1 - q)), Delta = max(1/q, 1/(1 - q)). (PPS prints neither the Delta
nor the strict inequality; without Delta it is not epsilon-DP.) With t = n q, an integer here, and q
>= 1/2, epsilon w_j / (2 Delta) is, up to a constant that cancels,

    epsilon/2 * max(t - N_j, lam (N_{j-1} - t)),     lam = (1 - q)/q = (n - t)/t <= 1.

So a bin that ends d ranks before t weighs e^(-epsilon d/2) and one that starts d ranks after it
e^(-epsilon lam d/2): two tables of integers, by the argument of `rank_exponential` private for
epsilon (1 + lam)/2 <= epsilon. The maximum is negative only for a bin with ties on both sides of t;
such a bin gets the weight of an exact hit, which moves no weight by more.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np

from confide.aggregator.quantiles.base import REPLACE_ONE, Privacy, PureMechanism
from confide.aggregator.quantiles.histogram import Histogram, check_rank
from confide.aggregator.quantiles.weights import (
    START,
    bin_weights,
    exact_law,
    falling,
    margin,
    pick,
)
from confide.protocol.errors import BadInput, check_epsilon, check_probability
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import Entropy, Integers


@dataclass(frozen=True, kw_only=True)
class PublishedExponential(PureMechanism):
    """What both share. q depends on n, so n must be public: replace-one only."""

    adjacencies = (REPLACE_ONE,)

    @abstractmethod
    def target(self, rank: int) -> int:
        """t = n q, rounded up to a whole rank."""

    @cached_property
    def low(self) -> list[int]:
        return falling(START, exp_below(self.epsilon / 2))

    def high(self, n: int, rank: int) -> list[int]:
        """The weights above the target, as far as n records can lie above it."""
        target = self.target(rank)
        slope = self.epsilon / 2 * (n - target) / target
        return falling(START, exp_below(slope), most=n - target + 1)

    @cached_property
    def privacy(self) -> Privacy:
        """For every n and rank; a rank far above n/2 spends little more than half of it."""
        return Privacy(self.adjacency, epsilon=log_up(exp_below(self.epsilon / 2) ** 2))

    def check(self, histogram: Histogram, rank: int) -> None:
        super().check(histogram, rank)
        if 2 * rank < histogram.n:
            raise BadInput(
                f"rank {rank} of {histogram.n} records; {self.name} accepts ranks from n/2 (its "
                "proof needs q >= 1/2)"
            )

    def weights(self, histogram: Histogram, rank: int) -> Integers:
        target = self.target(rank)
        if target >= histogram.n:
            return (np.arange(self.bins) == self.bins - 1).astype(np.int64)
        return bin_weights(
            histogram.cumulative,
            target,
            low=np.array(self.low),
            after=np.array(self.high(histogram.n, rank)),
        )

    def law(self, histogram: Histogram, rank: int) -> list[Fraction]:
        self.check(histogram, rank)
        return exact_law(self.weights(histogram, rank))

    def choose(self, histogram: Histogram, rank: int, entropy: Entropy) -> int:
        return pick(self.weights(histogram, rank), entropy)


@dataclass(frozen=True, kw_only=True)
class Pps(PublishedExponential):
    """PPS: n q = r + (2/epsilon) log(m/beta), beta = gamma alpha (Theorem 2).

    If q >= 1 the answer is the top of the grid.
    """

    name = "pps"

    def __post_init__(self) -> None:
        super().__post_init__()
        if margin(self.low, bins=self.bins, beta=self.failure) is None:
            raise self.unreachable()

    def certifies(self, *, n: int, rank: int) -> bool:
        """The proof needs q >= 1/2, so ranks from n/2 on."""
        return 2 * rank >= n

    @cached_property
    def raised(self) -> int:
        """The published correction, or that of the integer weights where it is larger."""
        exact = margin(self.low, bins=self.bins, beta=self.failure)
        assert exact is not None
        return max(exact - 1, math.ceil(2 / self.epsilon * math.log(self.bins / self.failure)))

    def target(self, rank: int) -> int:
        return rank + self.raised

    def inflation(self, *, n: int, rank: int) -> int:
        target = self.target(rank)
        up = margin(self.high(n, rank), bins=self.bins, beta=self.failure) if target < n else None
        return n + 1 - rank if up is None else target + up - rank


@dataclass(frozen=True, kw_only=True)
class Dpcp(PublishedExponential):
    """DPCP: alpha_0 = b - 2/(N epsilon) with b = 1 - r/N, so N q = r + 2/epsilon.

    Private like the others, but no bound is known on the probability that the threshold lies below
    the r-th score: Lemma 13 assumes a condition on the law itself, which some histograms break.
    """

    name = "dpcp"

    @classmethod
    def within(cls, *, epsilon: float, delta: float, beta: float | None, **public: Any) -> Self:
        return cls(epsilon=epsilon, **public)

    @property
    def certificate(self) -> str:
        return "not certified: rests on the weighted-average condition of DPCP Lemma 13"

    def rank(self, *, n: int, alpha: float) -> int:
        return dpcp_rank(n=n, level=alpha)

    def target(self, rank: int) -> int:
        return rank + math.ceil(2 / Fraction(self.epsilon))

    def check(self, histogram: Histogram, rank: int) -> None:
        super().check(histogram, rank)
        if self.target(rank) >= histogram.n:
            raise BadInput(
                f"level {1 - rank / histogram.n:.4g} of {histogram.n} records; dpcp accepts levels "
                f"above 2/(n epsilon) = {2 / self.epsilon / histogram.n:.4g}"
            )


def dpcp_rank(*, n: int, level: float) -> int:
    """ceil(n (1 - level)): mechanism `dpcp` aims 2/epsilon ranks above it (DPCP Algorithm 1)."""
    return check_rank(math.ceil(n * (1 - Fraction(level))), n)


def pps_gamma(*, n: int, alpha: float, epsilon: float) -> float:
    """The gamma of least level in PPS Theorem 2: a root of its derivative (equations 9, 10).

    It is the same for any number of bins.
    """
    check_probability("alpha", alpha)
    check_epsilon(epsilon)
    slope = alpha * (1 - alpha) * epsilon * (n + 1) / 2 + 2 * alpha
    # Of the two roots only the smaller can lie below 1; written so that no two near equals are
    # subtracted.
    root = 2 / (slope + math.sqrt(slope**2 - 4 * alpha**2))
    return root if root < 1 else 1e-12


def pps_rank(*, n: int, alpha: float, gamma: float) -> int:
    """ceil((n + 1)(1 - alpha)/(1 - gamma alpha)), for coverage 1 - alpha (PPS Theorem 2).

    With beta = gamma alpha, coverage is (1 - beta) r/(n + 1) or more, because the mechanism fails
    with probability at most beta on every histogram.
    """
    check_probability("alpha", alpha)
    check_probability("gamma", gamma)
    if alpha > 0.5:
        raise BadInput(f"alpha is {alpha}; accepted is at most 0.5")
    rank = math.ceil((n + 1) * (1 - Fraction(alpha)) / (1 - Fraction(gamma) * Fraction(alpha)))
    if rank > n:
        raise BadInput(
            f"infeasible: alpha {alpha} with gamma {gamma} needs rank {rank} of {n} records"
        )
    return rank
