"""Public grids of thresholds.

Bin j holds the scores in (grid[j - 1], grid[j]]; a threshold is always a right edge. A grid is
known by its name and its number of bins, and has the same bits on every machine:

- `uniform`: edges evenly in q. Scores that crowd at 1, such as APS, all fall into its last bins.
- `logit`: as many edges in every octave of q below 1/2, and of 1 - q above, which is close to
  evenly in logit(q).
- `mixed`: half of the edges each way. It loses little for any score.

Two more have their edges in the plan: `even`, even in the mean set size on records of the model
provider's own, and `given`, as the operator wrote them.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput, check_choice

Floats = NDArray[np.float64]

MOST_BINS = 1 << 20
UNIFORM, LOGIT, MIXED = "uniform", "logit", "mixed"
# The weight of octaves in halves; the rest is the weight of q itself.
GRIDS = {UNIFORM: 0, LOGIT: 2, MIXED: 1}
EVEN, GIVEN = "even", "given"
PLANNED_GRIDS = (EVEN, GIVEN)
GRID_NAMES = (*GRIDS, *PLANNED_GRIDS)
# The most edges in a plan.
MOST_EDGES = 4096
# The lowest and the highest octave end this near 0 and 1, beyond single precision.
_LEAST = 1 << 23
# Above the rounding error of score * bins, at most 2^-33.
_NEAR = 2.0**-30
# Scores handled at once, so that intermediate arrays stay in the cache.
_CHUNK = 1 << 14


def check_bins(bins: int) -> None:
    """Accept a number of bins whose weights 63 bits can hold."""
    if (
        isinstance(bins, bool)
        or not isinstance(bins, int | np.integer)
        or not 2 <= bins <= MOST_BINS
    ):
        raise BadInput(f"bins is {bins!r}; accepted is an integer from 2 to {MOST_BINS}")


@lru_cache(maxsize=8)
def uniform_grid(bins: int) -> Floats:
    """Right edges 1/bins, 2/bins, ..., 1, read-only."""
    check_bins(bins)
    grid = np.arange(1, bins + 1) / bins
    grid.flags.writeable = False
    return grid


@lru_cache(maxsize=8)
def public_grid(name: str, bins: int) -> Floats:
    """Right edges of the grid of this name, read-only; the last one is 1.

    The grid's measure (1 - w) q + w k(q) / K is linear between the knots 0, 2^-23, 2^-22, ..., 1/2,
    ..., 1 - 2^-23, 1, where k counts knots and K = 46; edge j is where it is j / bins. With all
    integers below 2^53 the division is rounded once, the product with a power of two not at all,
    and the sum once: IEEE arithmetic leaves no choice of bits.
    """
    check_choice("grid", name, GRIDS)
    if name == UNIFORM:
        return uniform_grid(bins)
    check_bins(bins)
    octaves = 1 << np.arange(_LEAST.bit_length() - 1)
    knots = np.concatenate([[0], octaves, _LEAST - octaves[-2::-1], [_LEAST]])
    spans, weight = len(knots) - 1, GRIDS[name]
    measure = (2 - weight) * spans * knots + weight * _LEAST * np.arange(spans + 1)
    j = np.arange(1, bins + 1)
    k = np.searchsorted(measure, -(-(j * measure[-1]) // bins)) - 1
    part = (j * measure[-1] - bins * measure[k]) / (bins * (measure[k + 1] - measure[k]))
    grid = (knots[k] + part * (knots[k + 1] - knots[k])) / _LEAST
    grid.flags.writeable = False
    return np.asarray(grid, dtype=np.float64)


def check_edges(grid: str, bins: int, edges: Sequence[float]) -> None:
    """Refuse edges in a plan that are not so many, ascending to 1, or that its grid has not."""
    if grid not in PLANNED_GRIDS:
        if edges:
            raise BadInput(f"grid is {grid} with {len(edges)} edges; accepted are none")
        return
    ascend = all(low < high for low, high in pairwise((0.0, *edges)))
    if not (2 <= len(edges) <= MOST_EDGES and len(edges) == bins and ascend and edges[-1] == 1):
        raise BadInput(
            f"grid is {grid} with {bins} bins and {len(edges)} edges; accepted are 2 to "
            f"{MOST_EDGES} edges, one a bin, that ascend from above 0 to 1"
        )


def grid_edges(name: str, bins: int, edges: Sequence[float] = ()) -> Floats:
    """Right edges of a grid of either kind, read-only; `edges` are those of the plan."""
    if name not in PLANNED_GRIDS:
        return public_grid(name, bins)
    grid = np.array(edges, dtype=np.float64)
    grid.flags.writeable = False
    return grid


def bin_indices(scores: NDArray[Any], grid: Floats) -> NDArray[np.int64]:
    """The bin of every score: O(n) on a uniform grid, O(n log m) on any other."""
    scores, grid = np.asarray(scores, dtype=np.float64), np.asarray(grid, dtype=np.float64)
    if scores.ndim != 1 or grid.ndim != 1:
        raise BadInput(
            f"scores of shape {scores.shape} on a grid of shape {grid.shape}; accepted is one row "
            "each"
        )
    check_bins(grid.size)
    # A NaN fails this comparison too.
    if scores.size and not (scores.max() <= grid[-1] and scores.min() > -np.inf):
        raise BadInput(
            f"scores run from {scores.min()} to {scores.max()}; accepted are numbers up to the "
            f"last edge {grid[-1]}"
        )
    uniform = np.array_equal(grid, uniform_grid(grid.size)) and bool((scores >= 0).all())
    return (
        _uniform_bins(scores, grid) if uniform else np.searchsorted(grid, scores).astype(np.int64)
    )


def _uniform_bins(scores: Floats, grid: Floats) -> NDArray[np.int64]:
    """searchsorted(grid, scores) on a uniform grid, without its log factor."""
    at = np.empty(scores.size, dtype=np.int64)
    for start in range(0, scores.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        place = scores[part] * grid.size
        at[part] = place
        place -= at[part]
        # A product this near a whole number may lie on the other side of its edge; there the edges
        # themselves decide.
        near = start + np.flatnonzero((place < _NEAR) | (place > 1 - _NEAR))
        at[near] = np.searchsorted(grid, scores[near])
    return at
