"""Known truth for tests: scripted entropy, goodness of fit, closed-form populations.

The tests of fit have a stated false-alarm probability; they load scipy.stats, which the processes
that tests start can do without.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FALSE_ALARM = 1e-9


class Scripted:
    """Entropy that returns the given words in order, and the word `then` after them."""

    def __init__(self, words: Iterable[int], bits: int, *, then: int = 0) -> None:
        self._bytes = np.fromiter(words, dtype=f"<u{bits // 8}").tobytes()
        self._then = then.to_bytes(bits // 8, "little")

    def __call__(self, size: int) -> bytes:
        dealt, self._bytes = self._bytes[:size], self._bytes[size:]
        return dealt + self._then * ((size - len(dealt)) // len(self._then))


def assert_follows(counts: NDArray[Any], probabilities: NDArray[Any]) -> None:
    """Assert chi-square goodness of fit; a correct sampler fails with probability about 1e-9."""
    from scipy.stats import chi2

    expected = counts.sum() * probabilities
    assert (expected >= 20).all(), "too few draws for the chi-square approximation"
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic <= chi2.isf(FALSE_ALARM, len(counts) - 1)


def assert_mean_at_most(found: Sequence[float], mean: float, *, doubt: float = 1e-5) -> None:
    """Refuse numbers in [0, 1] whose mean is above this, with a false alarm of at most `doubt`.

    Bets on each a share of the capital: prod(1 + 5 (x - mean)) has a mean of at most 1 where the
    promise holds (Markov).
    """
    assert mean <= 0.2, "the bets would lose more than there is"
    log_capital = float(np.log1p(5 * (np.asarray(found) - mean)).sum())
    assert log_capital < np.log(1 / doubt), f"{np.mean(found):.4f} in the mean of {len(found)}"


def assert_rate_at_most(failures: int, campaigns: int, delta: float) -> None:
    """Assert a failure rate; a true rate of at most delta fails with probability at most 1e-6."""
    from scipy.stats import binom

    assert failures <= binom.isf(1e-6, campaigns, delta), (
        f"{failures} failures in {campaigns} campaigns at delta {delta}"
    )


def assert_rare(happens: Callable[[int], bool], *, rate: float, other: float) -> None:
    """Assert, by trials 0, 1, ..., that something happens at no more than a rate.

    Wald's sequential test against a higher rate, which ends after one or two hundred trials: at the
    rate or below it fails with probability at most 1e-3, at the other or above it passes with
    probability at most 0.05.
    """
    evidence, trials, times = 0.0, 0, 0
    while math.log(0.05) < evidence < math.log(1e3):
        if happens(trials):
            evidence, times = evidence + math.log(other / rate), times + 1
        else:
            evidence += math.log((1 - other) / (1 - rate))
        trials += 1
    assert evidence < 0, f"{times} times in {trials} trials, where a rate of {rate} is allowed"


def label_population(
    n: int, k: int, rng: np.random.Generator, *, ties: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draw probabilities and labels of a calibrated model.

    One label, in a random place, has 1 - t, every other t/(k - 1). t is uniform on (0, 1 - 1/k);
    with ties it takes three values only, so the scores have six.
    """
    t = rng.choice([0.1, 0.3, 0.6], n) if ties else rng.uniform(0, 1 - 1 / k, n)
    first = rng.integers(0, k, n)
    probs = np.repeat((t / (k - 1))[:, None], k, axis=1)
    probs[np.arange(n), first] = 1 - t
    other = (first + rng.integers(1, k, n)) % k
    return probs, np.where(rng.random(n) < t, other, first)


def label_coverage(q: float, k: int) -> float:
    """P(1 - p_Y <= q) for `label_population` without ties, in closed form.

    The first label scores t and is true with 1 - t; the others score 1 - t/(k - 1) and hold t
    together.
    """
    top = 1 - 1 / k
    first = min(max(q, 0.0), top)
    rest = min(max((k - 1) * (1 - q), 0.0), top)
    return float((first - first**2 / 2 + (top**2 - rest**2) / 2) / top)
