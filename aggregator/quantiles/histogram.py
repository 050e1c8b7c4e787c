"""Counts of scores on a public grid, and the rank whose score a calibration needs.

Bin j holds the scores in (grid[j - 1], grid[j]]; a score is known by its bin's right edge only, and
a threshold is always a right edge. The last edge is the trivial threshold: it is at or above every
score.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput, check_probability
from confide.protocol.exact.grids import Floats, bin_indices, check_bins
from confide.protocol.exact.sampling import Integers
from confide.protocol.privacy.binomial import above

MOST_RECORDS = 1 << 40
# Above the relative error of binomial tails in doubles.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Histogram:
    """Non-negative integer counts over strictly increasing right edges."""

    counts: Integers
    grid: Floats

    def __post_init__(self) -> None:
        counts, grid = np.asarray(self.counts), np.asarray(self.grid, dtype=np.float64)
        if counts.ndim != 1 or counts.dtype.kind not in "iu":
            raise BadInput(
                f"counts have shape {counts.shape} and type {counts.dtype}; accepted is one row of "
                "integers"
            )
        if grid.shape != counts.shape:
            raise BadInput(
                f"{counts.size} counts on a grid of shape {grid.shape}; each count needs one right "
                "edge"
            )
        check_bins(counts.size)
        # Messages name no count: they may be exact, and land in logs.
        if counts.min() < 0:
            raise BadInput("a count is negative; accepted are counts of 0 or more")
        if not ((grid[1:] > grid[:-1]).all() and np.isfinite(grid[[0, -1]]).all()):
            raise BadInput(
                "the grid is not increasing; accepted are finite right edges, each above the one "
                "before"
            )
        if float(counts.sum(dtype=np.float64)) > MOST_RECORDS:
            raise BadInput(
                f"more than {MOST_RECORDS:,} scores were counted; accepted are at most so many"
            )
        object.__setattr__(self, "counts", counts.astype(np.int64, copy=False))
        object.__setattr__(self, "grid", grid)

    @property
    def bins(self) -> int:
        return len(self.counts)

    @cached_property
    def cumulative(self) -> Integers:
        """N_j, the scores at or below grid[j]."""
        return np.cumsum(self.counts)

    @property
    def n(self) -> int:
        return int(self.cumulative[-1])

    def bin_of(self, rank: int) -> int:
        """The bin of the rank-th smallest score; the last one when there are fewer scores."""
        return int(np.searchsorted(self.cumulative[:-1], rank))


def histogram(scores: NDArray[Any], grid: Floats) -> Histogram:
    """Count scores into bins: O(n) on `uniform_grid(m)`, O(n log m) on any other grid."""
    return Histogram(np.bincount(bin_indices(scores, grid), minlength=len(grid)), grid)


def check_rank(rank: int, n: int) -> int:
    """Refuse a rank that n records do not have."""
    if rank > n:
        raise BadInput(
            f"infeasible: rank {rank} of {n} records; accepted are more records, a larger alpha or "
            "less epsilon"
        )
    return rank


def conformal_rank(*, n: int, level: float) -> int:
    """ceil((n + 1) level), the rank of split conformal prediction.

    Levels are read as the decimals they print as. A rank above n cannot be certified: fewer scores
    than that exist (CARD section 5 needs k <= m).
    """
    check_probability("level", level)
    if n < 1:
        raise BadInput(f"n is {n}; at least 1 record is needed")
    rank = math.ceil((n + 1) * Fraction(str(level)))
    if rank > n:
        raise BadInput(
            f"infeasible: level {level} needs rank {rank} of {n} records; accepted are levels up "
            "to n/(n + 1)"
        )
    return rank


def tail_rank(*, n: int, alpha: float | Fraction, delta: float | Fraction) -> int:
    """The least r with P(Bin(n, 1 - alpha) >= r) <= delta, rounded up; n + 1 if there is none.

    Of n independent scores fewer than r lie below a threshold that covers less than 1 - alpha,
    except with probability delta: a threshold at or above the r-th covers 1 - alpha or more.
    """
    low, high = 0, n + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = float(above(middle - 1, n, 1 - float(alpha))) * (1 + ROUNDING) <= delta
        low, high = (low, middle) if fits else (middle, high)
    return high


def certified_rank(*, n: int, alpha: float, beta: float) -> int:
    """The rank for coverage 1 - alpha by a threshold that fails with probability beta.

    CARD Theorem 5.1; coverage is marginal.
    """
    check_probability("alpha", alpha)
    check_probability("beta", beta)
    if beta >= alpha:
        raise BadInput(
            f"beta is {beta} and alpha {alpha}; beta must be below alpha, of which it is a part"
        )
    return conformal_rank(n=n, level=float(1 - Fraction(str(alpha)) + Fraction(str(beta))))
