"""Binomial laws: tails from scipy.special, masses and quantiles from scipy.stats.

scipy.stats takes half a second to load, longer than the rest of a command, so it is loaded when it
is first asked. Its tails are the same numbers, but take several times as long.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc


def above(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Any:
    """P(Bin(n, p) > k), an incomplete beta function of k + 1 and n - k."""
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    tail = betainc(np.maximum(k + 1, 1), np.maximum(n - k, 1), p)
    return np.where(k < 0, 1.0, np.where(k >= n, 0.0, tail))


def below(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Any:
    """P(Bin(n, p) < k)."""
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    tail = betaincc(np.maximum(k, 1), np.maximum(n - k + 1, 1), p)
    return np.where(k <= 0, 0.0, np.where(k > n, 1.0, tail))


def masses(k: ArrayLike, n: int, p: float) -> Any:
    """P(Bin(n, p) = k)."""
    return _law().pmf(k, n, p)


def upper_quantile(level: float, n: int, p: float) -> int:
    """The least k with P(Bin(n, p) > k) <= level."""
    return int(_law().isf(level, n, p))


def lower_quantile(level: float, n: int, p: float) -> int:
    """The least k with P(Bin(n, p) <= k) >= level."""
    return int(_law().ppf(level, n, p))


def _law() -> Any:
    from scipy.stats import binom

    return binom
