"""How much noise and how many steps a total (epsilon, delta) allows.

Every answer stays within the budget.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from confide.protocol.errors import BadInput, check_epsilon, check_probability
from confide.protocol.privacy.losses import AccountedMechanism, SampledGaussian
from confide.protocol.privacy.profiles import PLD, Profile

# How close to the budget an answer comes, relatively, in the parameter sought.
_TOLERANCE = 1e-3
# Beyond these a mechanism is of no use, or costs more than any budget.
_LEAST, _MOST = 2.0**-8, 2.0**5
_NOTHING = Profile()


@dataclass(frozen=True)
class Budget:
    """A total (epsilon, delta), and the accountant that compares profiles with it."""

    epsilon: float
    delta: float
    accountant: str = PLD

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_probability("delta", self.delta)

    def excess(self, profile: Profile) -> float:
        """Log of what a profile spends over what is allowed.

        It is at most 0 within the budget, and grows with the cost.
        """
        if self.accountant == PLD:
            spent, allowed = profile.delta(self.epsilon), self.delta
        else:
            spent, allowed = profile.epsilon(self.delta, accountant=self.accountant), self.epsilon
        return math.log(max(spent, sys.float_info.min) / allowed)

    def allows(self, profile: Profile) -> bool:
        """Whether a profile stays within this budget."""
        return self.excess(profile) <= 0


def noise_multiplier(
    budget: Budget, *, sampling_rate: float, steps: int, spent: Profile = _NOTHING
) -> float:
    """The least noise with which `steps` of DP-SGD after `spent` stay within the budget.

    It is within 0.1%, from above.
    """

    def training(inverse: float) -> AccountedMechanism:
        return SampledGaussian(1 / inverse, sampling_rate, steps)

    return 1 / remaining(budget, training, spent=spent)


def remaining(
    budget: Budget, mechanism: Callable[[float], AccountedMechanism], *, spent: Profile = _NOTHING
) -> float:
    """The largest x for which `mechanism(x)` after `spent` stays within the budget.

    It is within 0.1%, from below.

    `mechanism` costs more as x grows: `remaining(budget, Gaussian, spent=training)` is the mu left
    for calibration, `remaining(budget, Pure, spent=training)` the epsilon.
    """

    def excess(log_x: float) -> float:
        return budget.excess(spent.then(mechanism(math.exp(log_x))))

    low = math.log(_LEAST)
    if excess(low) > 0:
        raise BadInput(
            f"({budget.epsilon:g}, {budget.delta:g}) leaves nothing worth using beside what is "
            "spent already; accepted is a larger budget, or less spent before"
        )
    # From the private side upwards, so that no profile far beyond the budget, slow to compute, is
    # asked for.
    high = low
    while excess(high) <= 0:
        low, high = high, high + math.log(2)
        if high > math.log(_MOST):
            return math.exp(low)
    # Loading scipy's optimisers takes longer than most commands do.
    from scipy.optimize import brentq

    found = brentq(excess, low, high, xtol=_TOLERANCE / 4)
    while excess(found) > 0:
        found -= _TOLERANCE / 4
    return math.exp(found)


def affordable_steps(
    budget: Budget, mechanism: SampledGaussian, *, spent: Profile = _NOTHING
) -> int:
    """How many of the mechanism's steps stay within the budget after `spent`."""

    def allowed(steps: int) -> bool:
        return budget.allows(
            spent.then(SampledGaussian(mechanism.noise_multiplier, mechanism.sampling_rate, steps))
            if steps
            else spent
        )

    if allowed(mechanism.steps):
        return mechanism.steps
    if not allowed(0):
        raise BadInput(
            f"what is spent already exceeds ({budget.epsilon:g}, {budget.delta:g}); nothing more "
            "may be done"
        )
    low, high = 0, mechanism.steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low
