"""What quantile mechanisms share: who is protected, what is released, what is certified.

A mechanism sees a histogram and a rank r and answers with a bin. It compares counts N_j with r and
nothing else, and between neighbours the differences N_j - r move all the same way, each by at most
1:

- `replace-one`: n and r are public. One record leaves bin a for bin b, so N_j moves between a and b
  only, one way.
- `add-remove`: a new record raises N_j from its bin on by 1. The rank may be fixed, or follow n so
  that one more record raises it by 0 or 1, as ceil((n + 1) g) does: every N_j - r rises by 0 or 1
  in the first case and falls by 0 or 1 in the second. Here n and r are secrets themselves and stay
  out of the release; a rank above n is answered by the top of the grid.

Every privacy proof of this package rests on that one fact.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from confide.aggregator.quantiles.histogram import (
    Histogram,
    certified_rank,
    conformal_rank,
    tail_rank,
)
from confide.protocol.errors import BadInput, check_epsilon, check_probability
from confide.protocol.exact.grids import check_bins
from confide.protocol.exact.sampling import Entropy, randomness
from confide.protocol.privacy.zcdp import zcdp_epsilon

REPLACE_ONE = "replace-one"
ADD_REMOVE = "add-remove"

CERTIFIED = "certified"
ASYMPTOTIC = "asymptotic only"
UNCERTIFIED = "none"


@dataclass(frozen=True)
class Privacy:
    """The guarantee of a release: epsilon-DP where `epsilon` is given, rho-zCDP otherwise."""

    adjacency: str
    epsilon: float | None = None
    rho: float | None = None

    def epsilon_at(self, delta: float) -> float:
        """The epsilon of (epsilon, delta)-DP."""
        if self.epsilon is not None:
            return self.epsilon
        assert self.rho is not None
        return zcdp_epsilon(self.rho, delta)


@dataclass(frozen=True)
class Release:
    """A private threshold and what is guaranteed of it, given the histogram.

    `certified`: the threshold is at or above the rank-th score except with probability `beta`; and
    at or below the score `inflation` ranks higher except with probability `beta`. Without a `beta`
    both are averages: the rank is `Mechanism.averaged_rank`, for coverage over the mechanism's own
    draws, which end at most `inflation` ranks higher in the mean. The rank is None where it would
    give n away.
    """

    mechanism: str
    bin: int
    threshold: float
    certificate: str
    privacy: Privacy
    beta: float | None
    rank: int | None
    inflation: int | None
    randomness: str


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A private choice of a bin; all its claims follow from its fields, before any data is seen.

    The class answers what can be known without a budget: whether a budget must have a delta above 0
    (`needs_delta`), which `adjacencies` the proof covers, whether each owner may add a share of the
    noise itself (`owners_can_noise`), and whether coverage may be averaged over the draws instead
    of leaving a part `beta` of alpha to those that fail (`averages`).
    """

    bins: int
    beta: float | None = None
    adjacency: str = REPLACE_ONE
    name: ClassVar[str]
    adjacencies: ClassVar[tuple[str, ...]] = (REPLACE_ONE, ADD_REMOVE)
    needs_delta: ClassVar[bool] = False
    owners_can_noise: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    # The number of bins that serves most scores where nobody chose one.
    usual_bins: ClassVar[int] = 1024

    @classmethod
    @abstractmethod
    def within(cls, *, epsilon: float, delta: float, beta: float | None, **public: Any) -> Self:
        """The mechanism whose release is (epsilon, delta)-DP; `public` has bins and adjacency.

        One that certifies nothing has no use for beta and leaves it out.
        """

    def __post_init__(self) -> None:
        check_bins(self.bins)
        if self.certificate == CERTIFIED and self.beta is None and not self.averages:
            raise BadInput(
                f"{self.name} needs beta, the probability with which its certificate may fail"
            )
        if self.certificate != CERTIFIED and self.beta is not None:
            raise BadInput(
                f"beta is {self.beta}; {self.name} with certificate {self.certificate!r} has none "
                "to keep"
            )
        if self.beta is not None:
            check_probability("beta", self.beta)
        if self.adjacency not in self.adjacencies:
            raise BadInput(
                f"adjacency is {self.adjacency!r}; {self.name} accepts "
                f"{' and '.join(self.adjacencies)}"
            )

    @property
    def certificate(self) -> str:
        return CERTIFIED

    def certifies(self, *, n: int, rank: int) -> bool:
        """Whether the guarantee is proved for this rank of n records."""
        return self.certificate == CERTIFIED

    def rank(self, *, n: int, alpha: float) -> int:
        """The rank that gives coverage 1 - alpha; a certified one leaves room for beta."""
        if self.beta is not None:
            return certified_rank(n=n, alpha=alpha, beta=self.beta)
        return conformal_rank(n=n, level=round(1 - alpha, 12))

    def averaged_rank(self, *, n: int, alpha: float | Fraction) -> int:
        """The rank that gives coverage 1 - alpha over the draws, whether n records have it or not.

        Between n and n + 1 it rises by 0 or 1.
        """
        raise BadInput(
            f"{self.name} needs beta, the probability with which its certificate may fail"
        )

    def pac_rank(self, *, n: int, alpha: float | Fraction, delta: float) -> int:
        """The rank for coverage 1 - alpha except with probability delta; n + 1 if there is none.

        Records must be independent. Beta is a part of delta here.
        """
        room = Fraction(str(delta)) - Fraction(str(self.beta or 0.0))
        return tail_rank(n=n, alpha=alpha, delta=room)

    @property
    def failure(self) -> Fraction:
        """Beta as an exact rational number, for mechanisms that have one."""
        assert self.beta is not None
        return Fraction(self.beta)

    @property
    @abstractmethod
    def privacy(self) -> Privacy:
        """The guarantee of the numbers sampled, rounded up; never above the budget asked for."""

    @abstractmethod
    def choose(self, histogram: Histogram, rank: int, entropy: Entropy) -> int:
        """A bin, drawn from the law."""

    def inflation(self, *, n: int, rank: int) -> int | None:
        """Ranks by which the threshold may exceed the one asked for; None: there is no bound.

        The bound fails with probability at most beta; without a beta it is one of the mean.
        """
        return None

    def check(self, histogram: Histogram, rank: int) -> None:
        """Refuse what cannot be answered. Under add-remove nothing here depends on n."""
        if histogram.bins != self.bins:
            raise BadInput(
                f"the histogram has {histogram.bins} bins; this mechanism was made for {self.bins}"
            )
        if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
            raise BadInput(f"rank is {rank!r}; accepted is an integer of at least 1")
        if self.adjacency == REPLACE_ONE and rank > histogram.n:
            raise BadInput(
                f"infeasible: rank {rank} of {histogram.n} records; accepted are ranks up to "
                f"{histogram.n}"
            )

    def release(self, histogram: Histogram, rank: int, entropy: Entropy) -> Release:
        self.check(histogram, rank)
        chosen = self.choose(histogram, rank, entropy)
        public = self.adjacency == REPLACE_ONE
        return Release(
            mechanism=self.name,
            bin=chosen,
            threshold=float(histogram.grid[chosen]),
            certificate=self.certificate,
            privacy=self.privacy,
            beta=self.beta,
            rank=int(rank) if public else None,
            inflation=self.inflation(n=histogram.n, rank=rank),
            randomness=randomness(entropy),
        )

    def read(self, values: dict[str, Any], rank: int) -> Release:
        """Read a release that was stored, and check that it is of this mechanism and rank."""
        release = Release(**values | {"privacy": Privacy(**values["privacy"])})
        expected = self.name, rank if self.adjacency == REPLACE_ONE else None
        if (release.mechanism, release.rank) != expected:
            raise BadInput(
                f"a release of {release.mechanism} at rank {release.rank}; this campaign asks for "
                f"{expected[0]} at rank {expected[1]}"
            )
        return release

    def observed(self, histogram: Histogram, rank: int, release: Release) -> dict[str, float]:
        """A release measured in thresholds, for a trusted auditor: it depends on exact counts."""
        exact = float(histogram.grid[histogram.bin_of(rank)])
        found = {"observed_inflation": release.threshold - exact}
        if self.beta is not None and release.inflation is not None:
            found["width"] = self.width(histogram, rank)
        return found

    def width(self, histogram: Histogram, rank: int) -> float:
        """W of CARD Proposition 5.2: the inflation bound as a difference of thresholds.

        It depends on the exact data, so it is for a trusted auditor only.
        """
        self.check(histogram, rank)
        ranks = None if self.beta is None else self.inflation(n=histogram.n, rank=rank)
        if ranks is None:
            raise BadInput(
                f"{self.name} with certificate {self.certificate!r} and beta {self.beta} bounds no "
                "single inflation; W needs a certified one with a beta"
            )
        return float(
            histogram.grid[histogram.bin_of(rank + ranks)] - histogram.grid[histogram.bin_of(rank)]
        )


@dataclass(frozen=True, kw_only=True)
class PureMechanism(Mechanism):
    """Pure epsilon-DP with a finite law of rational numbers.

    `epsilon` is the one asked for; `privacy` has the exact one.
    """

    epsilon: float

    @classmethod
    def within(cls, *, epsilon: float, delta: float, beta: float | None, **public: Any) -> Self:
        return cls(epsilon=epsilon, beta=beta, **public)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)

    @abstractmethod
    def law(self, histogram: Histogram, rank: int) -> list[Fraction]:
        """The exact probability of every bin."""

    def unreachable(self) -> BadInput:
        """The answer when even the rarest event the integers can express is not rare enough."""
        return BadInput(
            f"beta {self.beta} cannot be reached with epsilon {self.epsilon} and {self.bins} bins; "
            "accepted is a larger beta"
        )
