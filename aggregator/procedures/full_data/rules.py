"""The rules by which campaigns on the records of a training choose a rank, and what is known then.

A rule is made from public numbers: the terms of a plan and alpha. Privacy and coverage use the
training's noise in two ways. What records *pay* is replace-one, as owners charge it. What carries
*coverage* from n + 1 records to n is the profile when one record is added, which is smaller
(docs/full-data.md says why both are right).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from confide.aggregator.procedures.counts.central import trusted_mechanism
from confide.aggregator.procedures.full_data.levels import (
    CONDITIONAL,
    HEURISTIC_BUFFER,
    PUBLISHED_BUFFER,
    Transfer,
    dpcp_level,
    never_selected_bound,
)
from confide.aggregator.quantiles.base import ASYMPTOTIC, Mechanism
from confide.aggregator.quantiles.base import CERTIFIED as CERTIFIED_STATUS
from confide.aggregator.quantiles.gaussian import GaussianSearch
from confide.aggregator.quantiles.histogram import check_rank, conformal_rank
from confide.aggregator.quantiles.published import Dpcp, dpcp_rank
from confide.protocol.certificate import (
    DPCP_ASSUMPTIONS,
    DROPOUTS,
    HONEST_COUNTS,
    HONEST_TRAINING,
    LARGE_N,
    PAIRS,
)
from confide.protocol.errors import BadInput
from confide.protocol.methods.counts.full_data import CERTIFIED, DPCP, SCP_A, SCP_F, FullDataTerms
from confide.protocol.privacy.losses import ADD_REMOVE, SampledGaussian
from confide.protocol.privacy.profiles import Profile
from confide.protocol.privacy.renyi import training_epsilon
from confide.protocol.privacy.transfer import best_point, bound_point
from confide.protocol.privacy.zcdp import zcdp_within

FLOORS_ONLY = "floors only"
# A smaller delta of a point cannot be told from the rounding of accountants.
LEAST_DELTA = 1e-7
# Epsilons at which a card shows the profile besides the deciding one.
_SHOWN = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0)
_ROUNDING = 1e-12

Point = tuple[float, float]


@dataclass(frozen=True)
class CoveragePromise:
    """What is known of coverage before any record is seen, and what that rests on.

    `level` is guaranteed on average; None where nothing is. Floors are those of DP-SCP.
    """

    status: str
    level: float | None
    assumptions: tuple[str, ...]
    black_box_floor: float | None = None
    never_selected_bound: float | None = None
    buffer_is: str | None = None


@dataclass(frozen=True)
class Rule(ABC):
    """A rule for the rank of in-sample scores, under the terms of a plan."""

    terms: FullDataTerms
    alpha: float

    # Ranks that the search aims above the rank.
    buffer: ClassVar[int] = 0
    # Whether the threshold lies at or above the rank but for the probability beta.
    bounded: ClassVar[bool] = True

    @property
    def training(self) -> SampledGaussian:
        terms = self.terms
        return SampledGaussian(terms.training_noise, terms.training_rate, terms.training_steps)

    @property
    def points(self) -> tuple[Point, ...]:
        """Points (epsilon, delta) of the training's profile that the promise rests on."""
        return ()

    @property
    def miss(self) -> float | None:
        """The share of n + 1 records that the model may miss, by the transfer of coverage."""
        return None

    @abstractmethod
    def level(self, n: int) -> float:
        """The share of in-sample scores that may lie above the threshold."""

    @abstractmethod
    def rank(self, n: int) -> int:
        """The rank of n in-sample scores; refused if they have none."""

    @abstractmethod
    def promise(self, n: int) -> CoveragePromise:
        """What is known of the coverage of a calibration with n records."""

    def mechanism(self) -> Mechanism:
        """The mechanism of a trusted aggregator."""
        terms = self.terms
        return GaussianSearch(
            bins=terms.bins,
            beta=terms.beta if self.bounded else None,
            rho=zcdp_within(terms.epsilon, terms.privacy_delta),
            variant="F" if self.bounded else "A",
            buffer=self.buffer,
        )


_KNOWN = (PAIRS, DROPOUTS, HONEST_COUNTS, HONEST_TRAINING)


class Certified(Rule):
    """The whole profile of the training carries coverage to at least 1 - alpha."""

    @property
    def points(self) -> tuple[Point, ...]:
        return _transfer(self.training, self.alpha, self.terms.beta)[0]

    @property
    def miss(self) -> float:
        return _transfer(self.training, self.alpha, self.terms.beta)[1]

    def level(self, n: int) -> float:
        return Transfer(self.miss).level(n)

    def rank(self, n: int) -> int:
        return Transfer(self.miss).rank(n)

    def promise(self, n: int) -> CoveragePromise:
        return CoveragePromise(CERTIFIED_STATUS, 1 - self.alpha, _KNOWN)

    def mechanism(self) -> Mechanism:
        return trusted_mechanism(self.terms)


class OnePoint(Rule):
    """DPCP: level e^-epsilon (alpha - delta) for a training that is (epsilon, delta)-DP."""

    bounded = False

    @cached_property
    def added_epsilon(self) -> float:
        """The epsilon of the training when one record is added or removed."""
        terms = self.terms
        return training_epsilon(
            noise_multiplier=terms.training_noise,
            sampling_rate=terms.training_rate,
            steps=terms.training_steps,
            delta=terms.training_delta,
            adjacency=ADD_REMOVE,
        )

    @property
    def points(self) -> tuple[Point, ...]:
        return ((self.added_epsilon, self.terms.training_delta),)

    def level(self, n: int) -> float:
        return dpcp_level(
            alpha=self.alpha, epsilon=self.added_epsilon, delta=self.terms.training_delta
        )

    def rank(self, n: int) -> int:
        rank = dpcp_rank(n=n, level=self.level(n))
        if self.mechanism().target(rank) >= n:
            raise BadInput(
                f"infeasible: dpcp at level {self.level(n):.4g} needs more than 2/(epsilon level) "
                f"records; there are {n}"
            )
        return rank

    def promise(self, n: int) -> CoveragePromise:
        return CoveragePromise(CONDITIONAL, None, (*_KNOWN, DPCP_ASSUMPTIONS))

    def mechanism(self) -> Dpcp:
        return Dpcp(bins=self.terms.bins, epsilon=self.terms.epsilon)


class Nominal(Rule):
    """DP-SCP-A: the rank of split conformal prediction, by a search without offset."""

    bounded = False

    def level(self, n: int) -> float:
        return self.alpha

    def rank(self, n: int) -> int:
        rank = conformal_rank(n=n, level=round(1 - self.alpha, 12))
        check_rank(rank + self.buffer, n)
        return rank

    def promise(self, n: int) -> CoveragePromise:
        return CoveragePromise(ASYMPTOTIC, None, (*_KNOWN, LARGE_N))


class Buffered(Nominal):
    """DP-SCP-F: the nominal rank, the published buffer and the search's offset."""

    bounded = True
    buffer = PUBLISHED_BUFFER

    @property
    def points(self) -> tuple[Point, ...]:
        return _floor(self.training, self.alpha, self.terms.beta)[0]

    def promise(self, n: int) -> CoveragePromise:
        floor = _floor(self.training, self.alpha, self.terms.beta)[1]
        never = never_selected_bound(
            alpha=self.alpha,
            beta=self.terms.beta,
            n=n,
            sampling_rate=self.terms.training_rate,
            steps=self.terms.training_steps,
        )
        return CoveragePromise(
            FLOORS_ONLY,
            floor,
            _KNOWN,
            black_box_floor=floor,
            never_selected_bound=never,
            buffer_is=HEURISTIC_BUFFER,
        )


@lru_cache(maxsize=64)
def _transfer(
    training: SampledGaussian, alpha: float, beta: float
) -> tuple[tuple[Point, ...], float]:
    """Points of the profile, and the largest miss that one of them carries to alpha - beta."""
    profile = Profile().then(training)
    best, _ = best_point(profile, alpha=alpha, beta=beta)
    points = _points(profile, best)
    found = max(math.exp(-epsilon) * (alpha - beta - delta) for epsilon, delta in points)
    return points, max(0.0, found * (1 - _ROUNDING))


@lru_cache(maxsize=64)
def _floor(training: SampledGaussian, alpha: float, beta: float) -> tuple[tuple[Point, ...], float]:
    """Points of the profile, and the black-box floor by the best of them."""
    profile, above = Profile().then(training), alpha + beta - alpha * beta
    points = _points(profile, bound_point(profile, above)[0])
    bound = min(math.exp(epsilon) * above + delta for epsilon, delta in points)
    return points, max(0.0, 1 - bound * (1 + _ROUNDING))


def _points(profile: Profile, best: float) -> tuple[Point, ...]:
    """The deciding point, and others whose delta can be told from rounding."""
    found = {epsilon: profile.delta_added(epsilon) for epsilon in sorted({*_SHOWN, best})}
    return tuple(
        (epsilon, max(LEAST_DELTA, delta))
        for epsilon, delta in found.items()
        if epsilon == best or delta > LEAST_DELTA
    )


RULES: dict[str, type[Rule]] = {
    CERTIFIED: Certified,
    DPCP: OnePoint,
    SCP_F: Buffered,
    SCP_A: Nominal,
}


def rule_of(terms: FullDataTerms, *, alpha: float) -> Rule:
    """Make the rule of a plan's variant."""
    return RULES[terms.kind.rule](terms, alpha)
