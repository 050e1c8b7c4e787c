import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.quantiles.histogram import (
    Histogram,
    certified_rank,
    conformal_rank,
    histogram,
)
from confide.protocol.errors import BadInput
from confide.protocol.exact.exponentials import float_up
from confide.protocol.exact.grids import uniform_grid


@settings(max_examples=60, deadline=None, derandomize=True)
@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=50), bins=st.integers(2, 60))
def test_binning_agrees_with_the_edges(scores: list[float], bins: int) -> None:
    """Bin j holds (grid[j-1], grid[j]] to the last bit, on uniform grids with their edges and on
    any other."""
    grid = uniform_grid(bins)
    scores = [
        *scores,
        *grid.tolist(),
        *np.nextafter(grid[:-1], 2).tolist(),
        *np.nextafter(grid, -1).tolist(),
    ]
    expected = np.bincount(
        [next(j for j in range(bins) if s <= grid[j]) for s in scores], minlength=bins
    )
    assert np.array_equal(histogram(np.array(scores), grid).counts, expected)
    bent = np.append(grid[:-1] ** 2, 1.0)
    expected = np.bincount(
        [next(j for j in range(bins) if s <= bent[j]) for s in scores], minlength=bins
    )
    assert np.array_equal(histogram(np.array(scores), bent).counts, expected)


def test_ranks_are_those_of_the_papers() -> None:
    """ceil((n + 1) g) with decimals read as printed; alpha = 0.251 and beta = 0.001 is CARD's gamma
    = 0.75, L = 0.749."""
    assert conformal_rank(n=9, level=0.9) == 9
    assert (
        conformal_rank(n=999, level=0.75) == certified_rank(n=999, alpha=0.251, beta=0.001) == 750
    )


def test_floats_are_rounded_up() -> None:
    """float_up is the smallest float at or above a rational number."""
    assert float_up(Fraction(1, 3)) == math.nextafter(1 / 3, 1)
    assert float_up(Fraction(1, 2)) == 0.5


@pytest.mark.parametrize(
    ("counts", "grid", "says"),
    [
        ([1, -1], [0.5, 1.0], "a count is negative"),
        ([0.5, 1.0], [0.5, 1.0], "float64; accepted is one row of integers"),
        ([1, 2], [1.0, 0.5], "not increasing"),
        ([1, 2], [0.5, 0.5], "not increasing"),
        ([1, 2], [0.5, float("nan")], "not increasing"),
        ([1, 2], [0.5, 0.7, 1.0], "2 counts on a grid"),
        ([3], [1.0], "bins is 1"),
        ([[1, 2]], [[0.5, 1.0]], "shape"),
        ([1 << 41, 0], [0.5, 1.0], "at most"),
    ],
)
def test_impossible_histograms_are_refused(counts: Any, grid: Any, says: str) -> None:
    """Each refusal says what was found and what is accepted."""
    with pytest.raises(BadInput, match=says):
        Histogram(np.array(counts), np.array(grid))


@pytest.mark.parametrize("scores", [[0.5, float("nan")], [1.5], [-math.inf], [[0.5]]])
def test_impossible_scores_are_refused(scores: Any) -> None:
    """NaN, scores above the last edge, infinities and tables never become counts."""
    with pytest.raises(BadInput, match="accepted"):
        histogram(np.array(scores), uniform_grid(4))
