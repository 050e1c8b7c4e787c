"""Mechanisms and histograms that tests of quantiles share."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from confide.aggregator.quantiles.base import (
    REPLACE_ONE,
    Mechanism,
    PureMechanism,
)
from confide.aggregator.quantiles.histogram import (
    Histogram,
)
from confide.aggregator.quantiles.registry import MECHANISMS
from confide.protocol.exact.exponentials import exp_below
from confide.protocol.exact.grids import uniform_grid

GAUSSIAN = ("gaussian-search", "noisy-midpoint")
UNCERTIFIED = ("dpcp", "noisy-midpoint")
FINITE = [name for name in MECHANISMS if name not in GAUSSIAN]
Law = Callable[[Histogram, int], list[Fraction]]


def make(
    name: str, *, bins: int, budget: float = 1.0, beta: float = 0.1, adjacency: str = REPLACE_ONE
) -> Mechanism:
    given_budget = {"rho": budget} if name in GAUSSIAN else {"epsilon": budget}
    kept = {} if name in UNCERTIFIED else {"beta": beta}
    return MECHANISMS[name](bins=bins, adjacency=adjacency, **given_budget, **kept)


def finite(name: str, **fields: Any) -> PureMechanism:
    mechanism = make(name, **fields)
    assert isinstance(mechanism, PureMechanism)
    return mechanism


def on_grid(counts: Any) -> Histogram:
    return Histogram(np.array(counts, dtype=np.int64), uniform_grid(len(counts)))


def compositions(n: int, bins: int) -> Iterator[tuple[int, ...]]:
    """Yield every histogram of n records."""
    for bars in itertools.combinations(range(n + bins - 1), bins - 1):
        ends = (-1, *bars, n + bins - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(ends))


def exponential_law(weight: Callable[[int, int, int], float]) -> Law:
    """Return a law from log-weights of (N_{j-1}, N_j, n), to 60 digits."""

    def law(made: Histogram, rank: int) -> list[Fraction]:
        spans = list(itertools.pairwise([0, *made.cumulative.tolist()]))
        masses = {span: exp_below(weight(*span, made.n)) for span in spans}
        total = sum(masses[span] * count for span, count in Counter(spans).items())
        law = {span: mass / total for span, mass in masses.items()}
        return [law[span] for span in spans]

    return law


def worst_for_coverage(bins: int, n: int, rank: int) -> Histogram:
    """Return the histogram in which every bin but the last is one record short of the rank."""
    counts = np.zeros(bins, dtype=np.int64)
    counts[0], counts[-1] = rank - 1, n - rank + 1
    return on_grid(counts)
