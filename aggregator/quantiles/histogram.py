"""Counts of scores on a public grid, and the rank whose score a calibration needs.

Bin j holds the scores in (grid[j - 1], grid[j]]; a score is known by its bin's right edge only, and a threshold is always a
right edge. The last edge is the trivial threshold: it is at or above every score.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import BadInput, check_probability
from protocol.sampling import Integers

Floats = NDArray[np.float64]

MOST_BINS = 1 << 20
MOST_RECORDS = 1 << 40
# Above the rounding error of score * bins, at most 2^-33.
_NEAR = 2.0**-30
# Scores handled at once, so that what is in between stays in the cache.
_CHUNK = 1 << 14


def check_bins(bins: int) -> None:
    """Accept a number of bins whose weights 63 bits can hold."""
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or not 2 <= bins <= MOST_BINS:
        raise BadInput(f"bins is {bins!r}; accepted is an integer from 2 to {MOST_BINS}")


@lru_cache(maxsize=8)
def uniform_grid(bins: int) -> Floats:
    """Right edges 1/bins, 2/bins, ..., 1, read-only."""
    check_bins(bins)
    grid = np.arange(1, bins + 1) / bins
    grid.flags.writeable = False
    return grid


@dataclass(frozen=True, eq=False)
class Histogram:
    """Non-negative integer counts over strictly increasing right edges."""

    counts: Integers
    grid: Floats

    def __post_init__(self) -> None:
        counts, grid = np.asarray(self.counts), np.asarray(self.grid, dtype=np.float64)
        if counts.ndim != 1 or counts.dtype.kind not in "iu":
            raise BadInput(f"counts have shape {counts.shape} and type {counts.dtype}; accepted is one row of integers")
        if grid.shape != counts.shape:
            raise BadInput(f"{counts.size} counts on a grid of shape {grid.shape}; each count needs one right edge")
        check_bins(counts.size)
        if counts.min() < 0:
            raise BadInput(f"a count is {counts.min()}; accepted are counts of 0 or more")
        if not ((grid[1:] > grid[:-1]).all() and np.isfinite(grid[[0, -1]]).all()):
            raise BadInput("the grid is not increasing; accepted are finite right edges, each above the one before")
        if int(counts.max()) > MOST_RECORDS // counts.size:
            raise BadInput(f"a count is {counts.max()}; accepted are counts of at most {MOST_RECORDS // counts.size}")
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
    scores, grid = np.asarray(scores, dtype=np.float64), np.asarray(grid, dtype=np.float64)
    if scores.ndim != 1 or grid.ndim != 1:
        raise BadInput(f"scores of shape {scores.shape} on a grid of shape {grid.shape}; accepted is one row each")
    check_bins(grid.size)
    # A NaN fails this comparison too.
    if scores.size and not (scores.max() <= grid[-1] and scores.min() > -np.inf):
        raise BadInput(
            f"scores run from {scores.min()} to {scores.max()}; accepted are numbers up to {grid[-1]}, the last edge"
        )
    uniform = np.array_equal(grid, uniform_grid(grid.size)) and bool((scores >= 0).all())
    at = _uniform_bins(scores, grid) if uniform else np.searchsorted(grid, scores)
    return Histogram(np.bincount(at, minlength=grid.size), grid)


def _uniform_bins(scores: Floats, grid: Floats) -> Integers:
    """searchsorted(grid, scores) on a uniform grid, without its log factor."""
    at = np.empty(scores.size, dtype=np.int64)
    for start in range(0, scores.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        place = scores[part] * grid.size
        at[part] = place
        place -= at[part]
        # A product this near a whole number may lie on the other side of its edge; there the edges themselves decide.
        near = start + np.flatnonzero((place < _NEAR) | (place > 1 - _NEAR))
        at[near] = np.searchsorted(grid, scores[near])
    return at


def conformal_rank(*, n: int, level: float) -> int:
    """ceil((n + 1) level), the rank of split conformal prediction; levels are read as the decimals they print as.

    A rank above n cannot be certified: fewer scores than that exist (CARD section 5 needs k <= m).
    """
    check_probability("level", level)
    if n < 1:
        raise BadInput(f"n is {n}; at least 1 record is needed")
    rank = math.ceil((n + 1) * Fraction(str(level)))
    if rank > n:
        raise BadInput(f"infeasible: level {level} needs rank {rank} of {n} records; accepted are levels up to n/(n + 1)")
    return rank


def certified_rank(*, n: int, alpha: float, beta: float) -> int:
    """The rank for marginal coverage 1 - alpha by a threshold that fails with probability beta (CARD Theorem 5.1)."""
    check_probability("alpha", alpha)
    check_probability("beta", beta)
    if beta >= alpha:
        raise BadInput(f"beta is {beta} and alpha {alpha}; beta must be below alpha, of which it is a part")
    return conformal_rank(n=n, level=float(1 - Fraction(str(alpha)) + Fraction(str(beta))))
