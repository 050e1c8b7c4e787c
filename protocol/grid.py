"""Public grids of thresholds. Bin j holds the scores in (grid[j - 1], grid[j]]; a threshold is always a right edge."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import BadInput

Floats = NDArray[np.float64]

MOST_BINS = 1 << 20


def check_bins(bins: int) -> None:
    """Accept a number of bins whose weights 63 bits can hold."""
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or not 2 <= bins <= MOST_BINS:
        raise BadInput(f"bins is {bins!r}; accepted is an integer from 2 to {MOST_BINS}")


def uniform_grid(bins: int) -> Floats:
    """Right edges 1/bins, 2/bins, ..., 1."""
    check_bins(bins)
    return np.arange(1, bins + 1) / bins


def bin_indices(scores: NDArray[Any], grid: Floats) -> NDArray[np.int64]:
    """The bin of every score: O(n) on a uniform grid, O(n log m) on any other."""
    scores, grid = np.asarray(scores, dtype=np.float64), np.asarray(grid, dtype=np.float64)
    if scores.ndim != 1 or grid.ndim != 1:
        raise BadInput(f"scores of shape {scores.shape} on a grid of shape {grid.shape}; accepted is one row each")
    check_bins(grid.size)
    # A NaN fails this comparison too.
    if scores.size and not (scores.max() <= grid[-1] and scores.min() > -np.inf):
        raise BadInput(f"scores run from {scores.min()} to {scores.max()}; accepted are numbers up to the last edge {grid[-1]}")
    if not np.array_equal(grid, uniform_grid(grid.size)):
        return np.searchsorted(grid, scores).astype(np.int64)
    # The product may be rounded across an edge; the edges themselves decide.
    at = np.clip(np.ceil(scores * grid.size).astype(np.int64) - 1, 0, grid.size - 1)
    at += scores > grid[at]
    at -= (at > 0) & (scores <= grid[at - 1])
    return at
