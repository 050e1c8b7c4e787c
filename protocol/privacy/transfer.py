"""Coverage carried from training with the test record to training without it.

The bound uses the whole privacy profile of the training.

A model trained on n+1 exchangeable records misses any one of them as often as any other. Privacy
carries that to the model trained on n: miss(D_n) <= e^epsilon miss(D_n+1) + delta(epsilon) at every
real epsilon, where delta is that of one direction, D_n against D_n+1 (DPCP Theorems 11 and 12, with
the whole profile in place of one point).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput, check_probability
from confide.protocol.privacy.profiles import Profile

_GRID = np.linspace(-1.0, 1.0, 33)
_ROUNDING = 1e-12


def miss_bound(profile: Profile, miss: float) -> float:
    """inf over epsilon of e^epsilon * miss + delta(epsilon), from above.

    It bounds how often a model without the record misses it.
    """
    return bound_point(profile, miss)[1]


def bound_point(profile: Profile, miss: float) -> tuple[float, float]:
    """The epsilon of `miss_bound`, and that bound."""
    if not 0.0 <= miss <= 1.0:
        raise BadInput(f"miss is {miss!r}; it must lie between 0 and 1")
    epsilon, highest = _best(profile, lambda epsilon, delta: -(np.exp(epsilon) * miss + delta))
    return epsilon, min(1.0, -highest * (1 + _ROUNDING))


def best_point(profile: Profile, *, alpha: float, beta: float) -> tuple[float, float]:
    """The epsilon whose point of the profile allows the largest miss, and that miss, rounded down.

    One epsilon suffices for the bound, so the largest miss with miss_bound(miss) <= alpha - beta is
    the supremum over epsilon of e^-epsilon (alpha - beta - delta(epsilon)). It does not depend on
    the number of records.
    """
    check_probability("alpha", alpha)
    if not 0.0 <= beta < alpha:
        raise BadInput(f"beta is {beta!r}; it must lie between 0 and alpha = {alpha!r}")
    epsilon, miss = _best(profile, lambda epsilon, delta: np.exp(-epsilon) * (alpha - beta - delta))
    return epsilon, miss * (1 - _ROUNDING)


def _best(
    profile: Profile,
    value: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
) -> tuple[float, float]:
    """The epsilon with the highest value(epsilon, delta(epsilon)), and that value.

    It is sought on a grid that is narrowed four times.

    Any epsilon is valid, so at worst the answer is loose. Each grid holds the best epsilon of the
    one before.
    """
    centre, width, best = 0.0, 16.0, -np.inf
    for _ in range(5):
        epsilons = centre + width * _GRID
        values = value(
            epsilons, np.array([profile.delta_added(epsilon) for epsilon in epsilons.tolist()])
        )
        centre, width, best = float(epsilons[values.argmax()]), width / 8, float(values.max())
    return centre, best
