"""The cost of DP-SGD with discrete Gaussian noise, by Renyi divergences at integer orders.

It needs numpy only, and takes milliseconds.

**A step, one record added or removed.** With noise sigma on integers of sensitivity D, z = sigma /
D, and each record in the batch with probability q independently, the divergence of order a is at
most that of (1 - q) G_0 + q G_s from G_0, where G_s is the discrete Gaussian around s, |s| = D:

    D_a = log(sum over k of C(a, k) (1 - q)^(a - k) q^k exp((k^2 - k)/(2 z^2))) / (a - 1)

as for the continuous Gaussian (Mironov, Talwar, Zhang 2019), and exactly, because for integers k
and integer vectors s

    E[(G_s/G_0)^k] = exp((k^2 - k)|s|^2/(2 sigma^2)) * (sum of exp(-|x - k s|^2/(2 sigma^2)) / sum
    of exp(-|x|^2/(2 sigma^2)))

where both sums run over the same lattice, so that their ratio is 1. At other orders k s is no
lattice point, and nothing is claimed. The divergence the other way, of G_0 from the mixture, is no
larger: x -> s - x maps the lattice to itself and swaps G_0 and G_s, which is the involution that
their comparison of the two directions asks for. Shorter shifts cost less, term by term. Steps
compose by adding.

**One record replaced.** P and Q are the mechanism on two data sets that differ in one record, R on
the data without it. For integers m, n >= 2 and a = m n/(m + n - 1), P^a Q^(1-a) = (P^m
R^(1-m))^(a/m) (R^n Q^(1-n))^(1-a/m); by Hoelder's inequality

    D_a(P|Q) <= n/(n - 1) D_m(P|R) + D_n(R|Q),

which is Mironov 2017, Proposition 11; m = 2a, n = 2a - 1 is its best known case. Both on the right
are divergences as above.

**Rounding.** The terms k = 0 and 1 and the ones of all exponentials add up to 1, so log A = log(1 +
sum over k >= 2 of C(a, k) (1 - q)^(a - k) q^k (exp((k^2 - k)/(2 z^2)) - 1)): positive terms, no
cancellation. In logarithms each is off by at most 1e-10, or by 1e-14 relatively where they exceed
1e5, so a factor of 1 + 1e-9 rounds up.
"""

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput, check_probability
from confide.protocol.privacy.losses import ADD_REMOVE

Floats = NDArray[np.float64]

REPLACE_ONE = "replace-one"

MOST_ORDER = 512
ORDERS = np.arange(2, MOST_ORDER + 1)
# Orders m and n of the two halves of a replacement: next to each other, for the two divergences are
# alike.
_PAIRS = np.array([(m, n) for m in ORDERS for n in (m - 1, m, m + 1) if 2 <= n <= MOST_ORDER]).T

LEAST_NOISE, MOST_NOISE = 0.2, 1000.0
_ROUND_UP = 1 + 1e-9
# What doubles lose in the conversion, whose terms are below 2,100.
_CONVERTED = 1e-12


def training_epsilon(
    *,
    noise_multiplier: float,
    sampling_rate: float,
    steps: int,
    delta: float,
    adjacency: str = REPLACE_ONE,
) -> float:
    """An epsilon at which `steps` of DP-SGD are (epsilon, delta)-DP, rounded up."""
    if adjacency not in (REPLACE_ONE, ADD_REMOVE):
        raise BadInput(
            f"adjacency is {adjacency!r}; accepted are {REPLACE_ONE!r} and {ADD_REMOVE!r}"
        )
    check_probability("delta", delta)
    if not (steps >= 1 and steps == int(steps)):
        raise BadInput(f"steps is {steps!r}; it must be a whole number of at least 1")
    total = steps * divergences(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate)
    return _epsilon(
        *(replaced(total) if adjacency == REPLACE_ONE else (ORDERS.astype(np.float64), total)),
        delta,
    )


def training_noise(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float,
    steps: int,
    adjacency: str = REPLACE_ONE,
) -> float:
    """The least noise multiplier with which `steps` of DP-SGD are (epsilon, delta)-DP.

    The multiplier is at least LEAST_NOISE, and within 0.1%, from above.
    """

    def enough(noise_multiplier: float) -> bool:
        found = training_epsilon(
            noise_multiplier=noise_multiplier,
            sampling_rate=sampling_rate,
            steps=steps,
            delta=delta,
            adjacency=adjacency,
        )
        return found <= epsilon

    low, high = LEAST_NOISE, MOST_NOISE
    if not enough(high):
        raise BadInput(
            f"epsilon {epsilon!r} with delta {delta!r} for {steps} steps at rate {sampling_rate!r} "
            f"is not reached by any noise multiplier up to {MOST_NOISE:g}; accepted are a larger "
            "epsilon or delta, fewer steps or a smaller rate"
        )
    if enough(low):
        return low
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def divergences(*, noise_multiplier: float, sampling_rate: float) -> Floats:
    """D_a of one step at all ORDERS when one record is added or removed, rounded up."""
    if not 0.01 <= noise_multiplier <= 1e6:
        raise BadInput(f"noise_multiplier is {noise_multiplier!r}; accepted is 0.01 to 1e6")
    if not 1e-9 <= sampling_rate <= 1:
        raise BadInput(f"sampling_rate is {sampling_rate!r}; accepted is 1e-9 to 1")
    if sampling_rate == 1:
        return ORDERS / (2 * noise_multiplier**2) * _ROUND_UP
    starts, k, _, _ = _subsets()
    exponents = (
        np.arange(MOST_ORDER + 1) * (np.arange(MOST_ORDER + 1) - 1) / (2 * noise_multiplier**2)
    )
    gains = np.full(MOST_ORDER + 1, -np.inf)
    gains[2:] = exponents[2:] + np.log(-np.expm1(-exponents[2:]))
    terms = _chances(sampling_rate) + gains[k]
    largest = np.maximum.reduceat(terms, starts)
    terms -= np.repeat(largest, ORDERS - 1)
    sums = largest + np.log(np.add.reduceat(np.exp(terms, out=terms), starts))
    return np.logaddexp(0, sums) / (ORDERS - 1) * _ROUND_UP


def replaced(added: Floats) -> tuple[Floats, Floats]:
    """Orders and divergences when one record is replaced.

    They follow from those at ORDERS when one is added or removed.
    """
    m, n = _PAIRS
    return m * n / (m + n - 1), n / (n - 1) * added[m - 2] + added[n - 2]


def _epsilon(orders: Floats, total: Floats, delta: float) -> float:
    """The least over orders of D_a + log(1 - 1/a) - log(a delta)/(a - 1), never below 0.

    Canonne, Kamath, Steinke 2020, Proposition 12.
    """
    bounds = total + np.log1p(-1 / orders) - (np.log(orders) + math.log(delta)) / (orders - 1)
    return max(0.0, float(bounds.min()) + _CONVERTED)


@lru_cache(maxsize=4)
def _chances(sampling_rate: float) -> Floats:
    """log(C(a, k) q^k (1 - q)^(a - k)) for all orders a and k = 2..a, in a row."""
    _, k, rest, binomials = _subsets()
    powers = np.arange(MOST_ORDER + 1)
    return (
        binomials
        + (powers * math.log(sampling_rate))[k]
        + (powers * math.log1p(-sampling_rate))[rest]
    )


@cache
def _subsets() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Floats]:
    """For all orders a and k = 2..a in a row: starts, k, a - k, and log C(a, k)."""
    a = np.repeat(ORDERS, ORDERS - 1)
    starts = np.cumsum(ORDERS - 1) - (ORDERS - 1)
    k = np.arange(len(a)) - np.repeat(starts, ORDERS - 1) + 2
    factorials = np.array([math.lgamma(n + 1) for n in range(MOST_ORDER + 1)])
    return starts, k, a - k, factorials[a] - factorials[k] - factorials[a - k]
