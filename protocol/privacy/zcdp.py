"""Zero-concentrated differential privacy of counts with discrete Gaussian noise.

No accounting library is needed.

A count of sensitivity 1 with discrete Gaussian noise of variance v is 1/(2v)-zCDP, and adaptive
queries add up (Canonne, Kamath, Steinke 2020, Theorem 14).
"""

import math
from fractions import Fraction
from functools import cache

import numpy as np

from confide.protocol.errors import BadInput, check_probability

_MOST_RHO = 1000.0
_ORDERS = 1 + np.geomspace(1e-3, 1e9, 4000)
_FIXED = np.log1p(-1 / _ORDERS)
_LOGARITHMS = np.log(_ORDERS)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """An epsilon at which rho-zCDP is (epsilon, delta)-DP: the least over orders a of

    a rho + log(1 - 1/a) - log(a delta) / (a - 1)     (Canonne, Kamath, Steinke 2020, Corollary 13);

    every order gives a bound, so a finite search rounds up.
    """
    check_probability("delta", delta)
    bounds = _ORDERS * rho + _FIXED - (_LOGARITHMS + math.log(delta)) / (_ORDERS - 1)
    return max(0.0, float(bounds.min()) * (1 + 1e-9))


@cache
def zcdp_within(epsilon: float, delta: float) -> float:
    """The largest rho whose conversion to (epsilon, delta)-DP stays within both, from below."""
    low, high = 0.0, _MOST_RHO
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_epsilon(middle, delta) <= epsilon else (low, middle)
    if low < 1e-9:
        raise BadInput(
            f"epsilon {epsilon} with delta {delta} leaves nothing to Gaussian noise; accepted are "
            "larger ones"
        )
    return low


def search_steps(bins: int) -> int:
    """Counts that a bisection of so many bins asks for: ceil(log2(bins))."""
    return (bins - 1).bit_length()


def search_variance(*, bins: int, epsilon: float, delta: float, moved: int = 1) -> int:
    """The least whole variance with which all counts of a bisection stay within the budget.

    The budget is (epsilon, delta) for all of them together. Replacing a record moves so many counts
    in every round.
    """
    counts = moved * search_rounds(bins, moved=moved)
    variance = math.ceil(counts / (2 * Fraction(zcdp_within(epsilon, delta))))
    while zcdp_epsilon(counts / (2 * variance), delta) > epsilon:
        variance += 1
    return variance


def search_rounds(bins: int, *, moved: int = 1) -> int:
    """The rounds of a bisection.

    If a record may move two counts, those of private parts, there is one more: how many records
    each part has is counted with noise, too.
    """
    return search_steps(bins) + (moved > 1)
