"""Privacy amplification by shuffling, by numbers and not by rate.

The local epsilon of n shuffled reports is at most that of comparing P = (A + D, C - A + 1 - D) with
Q = (A + 1 - D, C - A + D), where C ~ Bin(n - 1, 2/(e^eps + 1)), A ~ Bin(C, 1/2), D ~
Bern(e^eps/(e^eps + 1)) (Feldman, McMillan, Talwar 2023). n counts the honest reports that arrived
in the same round through a shuffler: they went through the same randomiser, whose output is the bit
together with the threshold that it answers.

It speaks of LDP-CP-S, whose messages are bare bits. In LDP-CP-L every message carries its own
features, which tell the messages apart, so shuffling amplifies nothing there.
"""

import math

import numpy as np

from confide.protocol.errors import BadInput, check_epsilon, check_probability
from confide.protocol.privacy.binomial import above, lower_quantile, masses, upper_quantile

NO_AMPLIFICATION = "shuffle: no amplification, features identify messages"
# The delta at which cards state the epsilon of shuffled reports.
SHUFFLE_DELTA = 1e-6

# Mass of C left out at either end; it is added to delta.
_CUT = 1e-4
# Doubles lose this much, relatively, over the sums below.
_ROUNDING = 1e-9


def shuffled_delta(*, epsilon: float, local_epsilon: float, n: int, cut: float) -> float:
    """The hockey-stick divergence at e^epsilon between P and Q, rounded up.

    `cut` is the mass of C that is left out and charged in full.

    Given C = c, the first coordinate decides: P/Q grows with it, so P exceeds e^epsilon Q exactly
    from some k(c) on, and binomial tails give the divergence. P and Q trade places when the
    coordinates do, so one direction is both.
    """
    if epsilon >= local_epsilon:
        return 0.0
    p = 1 / (1 + math.exp(-local_epsilon))
    rate = 2 / (math.exp(local_epsilon) + 1)
    low, high = (find(cut / 2, n - 1, rate) for find in (lower_quantile, upper_quantile))
    c = np.arange(low, high + 1)
    e = math.exp(epsilon)
    # P(a)/Q(a) = (p a + (1-p) b) / ((1-p) a + p b), b = c + 1 - a; it passes e at a/b = odds.
    odds = (e * p - (1 - p)) / (p - e * (1 - p))
    k = np.ceil(odds * (c + 1) / (1 + odds) - 1e-9)
    upper, lower = above(k - 2, c, 0.5), above(k - 1, c, 0.5)
    gap = (p * upper + (1 - p) * lower) - e * ((1 - p) * upper + p * lower)
    return float(masses(c, n - 1, rate) @ np.maximum(gap, 0.0)) * (1 + _ROUNDING) + cut


def shuffled_epsilon(*, local_epsilon: float, n: int, delta: float) -> float:
    """The epsilon that n shuffled reports of a local channel satisfy at delta, rounded up.

    It is never above the local epsilon.
    """
    check_epsilon(local_epsilon)
    check_probability("delta", delta)
    if n < 1:
        raise BadInput(f"n is {n}; at least 1 report must have arrived")
    low, high = 0.0, local_epsilon
    while high - low > 1e-6 * local_epsilon:
        middle = (low + high) / 2
        enough = (
            shuffled_delta(epsilon=middle, local_epsilon=local_epsilon, n=n, cut=_CUT * delta)
            <= delta
        )
        low, high = (low, middle) if enough else (middle, high)
    return high
