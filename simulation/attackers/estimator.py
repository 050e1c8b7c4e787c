"""Lower bounds on epsilon from watching a mechanism: canaries, guesses, and two bounds.

In a run the batch holds one of two canaries, chosen by a fair coin, and the auditor sees what is
released. Its projection on the difference of the canaries' gradients is the statistic: above 0 it
speaks for the first canary, below for the second. Runs are independent. The claim that is audited
is replace-one: the batches differ in one record.

Both bounds are wrong (above the true epsilon) with probability at most `false_alarm`; they are
Clopper-Pearson bounds on the auditor's rates of success.

    by_definition   h = P(guess right) and f = P(guess wrong), where the auditor guesses only if the
                    statistic is longer than a threshold that was fixed before the runs. By
                    (epsilon, delta)-DP of both orders of the canaries, h <= e^epsilon f + delta.
                    It assumes nothing else, and needs about 10^5 runs.
    by_gaussian     the auditor always guesses. For a mechanism whose trade-off function is that of
                    N(0, 1) and N(mu, 1), P(guess wrong) >= Phi(-mu/2) (Dong, Roth, Su 2022), so a
                    rate of errors gives a least mu, and mu gives epsilon at delta. It assumes the
                    Gaussian shape, as steps without sampling have it, and needs about 10^3 runs
                    (Nasr et al. 2023).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import beta

Array = NDArray[Any]
# Maps the features and labels of a batch to the noisy sum of its clipped gradients, or to anything
# else that is released. Every call draws noise of its own.
Release = Callable[[Array, Array], Array]
Batch = tuple[Array, Array]


@dataclass(frozen=True)
class Canaries:
    """Two batches that differ in one record, and where the first moves a release from the second.

    `direction` is a vector of length 1.
    """

    first: Batch
    second: Batch
    direction: Array


def watch(release: Release, canaries: Canaries, *, runs: int, seed: int) -> Array:
    """Return the statistics of independent runs, each positive if it speaks for the true canary."""
    coins = np.random.default_rng(seed).random(runs) < 0.5
    return np.array(
        [
            release(*canaries.first) @ canaries.direction
            if coin
            else -(release(*canaries.second) @ canaries.direction)
            for coin in coins
        ]
    )


def by_definition(
    statistics: Array, *, threshold: float, delta: float, false_alarm: float
) -> float:
    """A lower bound on epsilon that assumes nothing but independent runs."""
    right = int(np.count_nonzero(statistics > threshold))
    guesses = right + int(np.count_nonzero(statistics < -threshold))
    share = 1 - _most(guesses - right, guesses, false_alarm / 2)
    guessed = 1 - _most(len(statistics) - guesses, len(statistics), false_alarm / 2)
    if guessed == 0 or share <= delta / guessed:
        return 0.0
    return max(0.0, math.log((share - delta / guessed) / (1 - share)))


def by_gaussian(statistics: Array, *, delta: float, false_alarm: float) -> float:
    """A lower bound on epsilon for mechanisms of Gaussian shape."""
    wrong = int(np.count_nonzero(statistics <= 0))
    mu = -2 * float(ndtri(_most(wrong, len(statistics), false_alarm)))
    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon at delta of telling N(0, 1) from N(mu, 1) (Balle, Wang 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        second = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2)))
        return float(ndtr(mu / 2 - epsilon / mu)) - second - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, mu * mu + 20 * mu))


def _most(events: int, trials: int, error: float) -> float:
    """An upper limit on the probability of an event, which is wrong with probability `error`."""
    return 1.0 if events >= trials else float(beta.ppf(1 - error, events + 1, trials - events))
