"""Public grids: exact edges, the same for whoever counts, releases and verifies."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from confide.protocol.cards.verify.released import on_grid
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import (
    GRIDS,
    LOGIT,
    MIXED,
    MOST_BINS,
    UNIFORM,
    bin_indices,
    check_edges,
    public_grid,
)

SIZES = (2, 3, 7, 46, 64, 1000, 1024, 16_384, MOST_BINS)


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("bins", SIZES)
def test_edges_ascend_from_above_0_to_1(name: str, bins: int) -> None:
    grid = public_grid(name, bins)
    assert grid.size == bins
    assert grid[0] > 0
    assert grid[-1] == 1
    assert (np.diff(grid) > 0).all()


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("bins", SIZES)
def test_the_verifier_finds_the_same_bits(name: str, bins: int) -> None:
    """It computes the edge of one bin from the definition, with code of its own."""
    grid = public_grid(name, bins)
    chosen = {0, bins // 2, bins - 1, *np.random.default_rng(1).integers(0, bins, 100).tolist()}
    for bin_ in chosen:
        released = {"bin": bin_, "threshold": float(grid[bin_])}
        shown = {"grid": name, "bins": bins}
        assert all(finding.holds for finding in on_grid(released, shown))
        moved = released | {"threshold": float(np.nextafter(grid[bin_], 0))}
        assert not all(finding.holds for finding in on_grid(moved, shown))


def test_edges_are_where_the_measure_says_in_rational_numbers() -> None:
    """Rounding moves an edge by less than two units in the last place of 1."""
    halves = [Fraction(1, 2**power) for power in range(23, 0, -1)]
    knots = [Fraction(0), *halves, *(1 - half for half in reversed(halves[:-1])), Fraction(1)]
    for name, weight in ((LOGIT, Fraction(1)), (MIXED, Fraction(1, 2))):
        bins, spans = 257, len(knots) - 1
        heights = [(1 - weight) * q + weight * Fraction(k, spans) for k, q in enumerate(knots)]
        for j, edge in enumerate(public_grid(name, bins).tolist(), start=1):
            aim = Fraction(j, bins)
            k = next(k for k, (low, up) in enumerate(pairwise(heights)) if low < aim <= up)
            share = (aim - heights[k]) / (heights[k + 1] - heights[k])
            exact = knots[k] + share * (knots[k + 1] - knots[k])
            assert abs(Fraction(edge) - exact) < Fraction(1, 2**51)


def test_scores_that_crowd_at_1_are_told_apart() -> None:
    """A thousand scores within 1e-3 of 1 share one bin of 1,024 even ones, and 100 others here."""
    scores = 1 - np.geomspace(1e-6, 9e-4, 1000)
    assert np.unique(bin_indices(scores, public_grid(UNIFORM, 1024))).size == 1
    assert np.unique(bin_indices(scores, public_grid(MIXED, 1024))).size > 100
    assert np.unique(bin_indices(scores, public_grid(LOGIT, 1024))).size > 200


@pytest.mark.parametrize(("name", "bins"), [("even", 16), ("", 16), (MIXED, 1), (LOGIT, 2**21)])
def test_unknown_grids_are_refused(name: str, bins: int) -> None:
    with pytest.raises(BadInput, match="accepted"):
        public_grid(name, bins)


@pytest.mark.parametrize(
    ("name", "bins", "edges"),
    [
        ("given", 2, (0.5,)),
        ("given", 3, (0.5, 1.0)),
        ("given", 2, (0.5, 0.9)),
        ("given", 2, (1.0, 0.5)),
        ("given", 2, (0.0, 1.0)),
        ("given", 2, (float("nan"), 1.0)),
        ("even", 2, ()),
        (MIXED, 2, (0.5, 1.0)),
    ],
)
def test_edges_of_a_plan_ascend_to_one_and_are_as_many_as_bins(
    name: str, bins: int, edges: tuple[float, ...]
) -> None:
    with pytest.raises(BadInput, match=f"grid is {name}"):
        check_edges(name, bins, edges)
    check_edges("given", 2, (0.5, 1.0))
