"""The cost of a sequence of mechanisms: delta at every epsilon, always rounded up.

A `Profile` holds one sequence of mechanisms for each group of records that were treated alike. A
record is in one group, so the whole costs what the worst group costs (parallel composition); within
a group, mechanisms compose one after the other and adaptively. Adjacency is add-remove. Trainings
are composed with the losses of continuous noise; what their discrete noise may cost beyond
(`lattice_slack`, about 2e-11 of epsilon for 1,000 steps at noise multiplier 1) is added to every
answer.
"""

import math
import sys
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from confide.protocol.errors import BadInput, check_probability
from confide.protocol.privacy.losses import (
    AccountedMechanism,
    Gaussian,
    SampledGaussian,
    losses,
    spacing,
)

PLD = "pld"
RDP = "rdp"

# Orders of Renyi divergence, as Opacus has them by default.
ORDERS = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)), dtype=np.float64)

# What doubles lose: the closed form this much relatively (tested with 400 digits); a convolution by
# FFT this much a step, absolutely, which is an estimate with room to spare and no theorem. It
# matters for deltas below 1e-9 only.
_CLOSED, _CONVOLVED = 1e-9, 1e-15
_MOST_EPSILON = 1e4
# Discrete noise differs from continuous noise as it may, except with probability e^-70.
_TAIL = 70.0

Sequence = tuple[AccountedMechanism, ...]


@dataclass(frozen=True)
class Profile:
    """A composition of mechanisms, with upper bounds on its whole privacy profile."""

    groups: tuple[Sequence, ...] = ((),)

    def __post_init__(self) -> None:
        if not self.groups:
            raise BadInput(
                "a profile has no groups of records; one that spends nothing is Profile()"
            )
        object.__setattr__(self, "groups", tuple(dict.fromkeys(self.groups)))

    def then(self, *others: "Profile | AccountedMechanism") -> "Profile":
        """This profile followed by others on the same records.

        The groups of both are crossed, which can only overstate the cost.
        """
        groups = self.groups
        for other in others:
            following = other.groups if isinstance(other, Profile) else ((other,),)
            groups = tuple(first + second for first in groups for second in following)
        return Profile(groups)

    def delta(self, epsilon: float) -> float:
        """The least delta at which this is (epsilon, delta)-DP, rounded up.

        Epsilon may be negative.
        """
        return max(_delta(group, epsilon, added_only=False) for group in self.groups)

    def delta_added(self, epsilon: float) -> float:
        """As `delta`, for one direction only.

        P_D(E) <= e^epsilon P_D'(E) + delta where D' is D and one more record.
        """
        return max(_delta(group, epsilon, added_only=True) for group in self.groups)

    def epsilon(self, delta: float, *, accountant: str = PLD) -> float:
        """An epsilon >= 0 at which this is (epsilon, delta)-DP, rounded up.

        It is infinite when there is none.
        """
        check_probability("delta", delta)
        if accountant == RDP:
            return max(_renyi_epsilon(group, delta) for group in self.groups)
        if accountant != PLD:
            raise BadInput(f"accountant is {accountant!r}; accepted are {PLD!r} and {RDP!r}")
        return _least(lambda epsilon: self.delta(epsilon) <= delta)


def parallel(*profiles: Profile) -> Profile:
    """Profiles on disjoint sets of records: each record pays for its own set only.

    The sets are owners, or the halves of a split.
    """
    return Profile(tuple(group for profile in profiles for group in profile.groups))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), rounded up.

    Dong, Roth, Su 2022, Corollary 1.

    Beyond the middle both terms are written as a density times a Mills ratio, which leaves no small
    difference of tails.
    """
    # Loading scipy takes longer than anything else an owner's command does.
    from scipy.special import erfcx, log_ndtr, ndtr

    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if low < 0:
        value = ndtr(-low) - math.exp(epsilon + log_ndtr(-high))
    else:
        value = (
            math.exp(-(low**2) / 2) / 2 * (erfcx(low / math.sqrt(2)) - erfcx(high / math.sqrt(2)))
        )
    return min(1.0, float(value) * (1 + _CLOSED) + sys.float_info.min)


def _delta(group: Sequence, epsilon: float, *, added_only: bool) -> float:
    mu = _only_gaussian(group)
    if mu is not None:
        return gaussian_delta(mu, epsilon) if mu > 0 else max(0.0, -math.expm1(epsilon))
    before, after, tails = _lattice(group, epsilon)
    if before + after >= 1:
        return 1.0
    value = _point(group, _less(epsilon, before + after), added_only=added_only)
    steps = sum(part.steps if isinstance(part, SampledGaussian) else 1 for part in group)
    return min(1.0, math.exp(before) * (value + _CONVOLVED * (1000 + steps)) + tails)


# Searches over epsilon ask a profile at the same points again, and a point takes a millisecond.
@lru_cache(maxsize=4096)
def _point(group: Sequence, epsilon: float, *, added_only: bool) -> float:
    loss = _loss(group)
    # dp_accounting's "add": the upper law is without the record and the lower one with it.
    return float((loss._pmf_add if added_only else loss).get_delta_for_epsilon(epsilon))


def _lattice(group: Sequence, epsilon: float) -> tuple[float, float, float]:
    """Return what the discrete noise of all trainings may cost beyond continuous noise.

    The first two numbers are the sums of the slacks of the trainings. The third bounds what the
    tails of their noise add to delta: a tail of e^(-_TAIL - epsilon) adds at most e^-_TAIL.
    """
    slacks = [
        part.slack(_TAIL + max(epsilon, 0.0)) for part in group if isinstance(part, SampledGaussian)
    ]
    return sum(b1 for b1, _ in slacks), sum(b2 for _, b2 in slacks), len(slacks) * math.exp(-_TAIL)


def _less(epsilon: float, shift: float) -> float:
    """epsilon - shift, rounded down."""
    return math.nextafter(epsilon - shift * (1 + _CLOSED), -math.inf) if shift else epsilon


def _only_gaussian(group: Sequence) -> float | None:
    """The mu of a group that is Gaussian throughout, or empty.

    Its profile has a closed form.
    """
    if all(isinstance(part, Gaussian) for part in group):
        return math.hypot(*(part.mu for part in group if isinstance(part, Gaussian)))
    return None


@lru_cache(maxsize=16)
def _loss(group: Sequence) -> Any:
    grid = spacing(group)
    return reduce(
        lambda one, other: one.compose(other), (_part(mechanism, grid) for mechanism in group)
    )


@lru_cache(maxsize=16)
def _part(mechanism: AccountedMechanism, grid: float) -> Any:
    return mechanism.loss(grid)


def _renyi_epsilon(group: Sequence, delta: float) -> float:
    if not group:
        return 0.0
    losses()
    from dp_accounting import rdp

    total = sum(part.renyi(ORDERS) for part in group)
    before, _, tails = _lattice(group, 0.0)
    within = (delta - tails) * math.exp(-before)
    if within <= 0:
        return math.inf
    found = float(rdp.compute_epsilon(ORDERS, total, within)[0]) * (1 + _CLOSED)
    _, after, _ = _lattice(group, found + 1)
    return found + before + after if before + after < 1 else math.inf


def _least(enough: Any) -> float:
    """The least epsilon >= 0 that is enough, within a part in 10^7 and from above.

    It is infinite where no useful epsilon is enough.
    """
    if enough(0.0):
        return 0.0
    high = 1.0
    while not enough(high):
        high *= 2
        if high > _MOST_EPSILON:
            return math.inf
    low = high / 2 if high > 1 else 0.0
    while high - low > 1e-7 * max(high, 1e-3):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
