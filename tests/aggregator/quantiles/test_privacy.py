import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from confide.aggregator.quantiles.above_threshold import AboveThreshold
from confide.aggregator.quantiles.base import (
    ADD_REMOVE,
)
from confide.aggregator.quantiles.histogram import (
    Histogram,
)
from confide.aggregator.quantiles.noise import LaplaceTail
from confide.aggregator.quantiles.published import Pps, pps_gamma, pps_rank
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.aggregator.quantiles.registry import MECHANISMS
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.truth.quantiles import (
    FINITE,
    Law,
    compositions,
    exponential_law,
    finite,
    make,
    on_grid,
)


def replaced(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for a, b in itertools.permutations(range(len(counts)), 2):
        if counts[a]:
            yield tuple(c - (j == a) + (j == b) for j, c in enumerate(counts))


def added(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for a in range(len(counts)):
        yield tuple(c + (j == a) for j, c in enumerate(counts))


def worst_loss(p: list[Fraction], q: list[Fraction]) -> Fraction:
    assert all((a == 0) == (b == 0) for a, b in zip(p, q, strict=True)), (
        "an outcome is possible for one neighbour only"
    )
    pairs = {(a, b) for a, b in zip(p, q, strict=True) if a}
    # Candidates by floats, the ratio itself in rationals: dividing every pair exactly would take
    # minutes.
    near = max(abs(log_ratio(a, b)) for a, b in pairs)
    return max(max(a / b, b / a) for a, b in pairs if abs(log_ratio(a, b)) >= near - 1e-9)


def log_ratio(a: Fraction, b: Fraction) -> float:
    """log(a/b) within 1e-11, of rationals of any size."""
    return (
        math.log(a.numerator)
        - math.log(a.denominator)
        - math.log(b.numerator)
        + math.log(b.denominator)
    )


def assert_private(
    law: Law, pairs: Iterator[tuple[Histogram, int, Histogram, int]], epsilon: float
) -> Fraction:
    """The exact worst ratio over the pairs of neighbours, after checking that it is at most
    e^epsilon."""
    known: dict[tuple[bytes, int], list[Fraction]] = {}

    def law_of(made: Histogram, rank: int) -> list[Fraction]:
        key = made.counts.tobytes(), rank
        if key not in known:
            known[key] = law(made, rank)
        return known[key]

    worst = Fraction(1)
    for one, r, other, s in pairs:
        worst = max(worst, worst_loss(law_of(one, r), law_of(other, s)))
    assert log_up(worst) <= epsilon, f"loss {log_up(worst)} with epsilon {epsilon}"
    return worst


def replace_pairs(n: int, bins: int, rank: int) -> Iterator[tuple[Histogram, int, Histogram, int]]:
    for counts in compositions(n, bins):
        for neighbour in replaced(counts):
            if counts < neighbour:
                yield on_grid(counts), rank, on_grid(neighbour), rank


def add_pairs(
    sizes: range, bins: int, rank_of: Callable[[int], int]
) -> Iterator[tuple[Histogram, int, Histogram, int]]:
    for n in sizes:
        for counts in compositions(n, bins):
            for neighbour in added(counts):
                yield on_grid(counts), rank_of(n), on_grid(neighbour), rank_of(n + 1)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in ("pps", "dpcp")])
def test_add_remove_keeps_n_and_the_rank_out_of_the_release(name: str) -> None:
    """Under add-remove a release shows no rank, and a rank above n is answered, not refused,
    because refusing tells n."""
    mechanism = make(name, bins=8, budget=8.0, adjacency=ADD_REMOVE)
    release = mechanism.release(on_grid([0, 3, 0, 0, 1, 0, 0, 0]), 30, SeededEntropy(0))
    assert release.rank is None
    assert release.privacy.adjacency == ADD_REMOVE
    assert release.bin == 7


# Little and much privacy, and a beta for which the target falls inside and outside so few records.
CASES = [(0.5, 0.3), (2.0, 0.3), (8.0, 0.3), (8.0, 0.9)]


@pytest.mark.parametrize("name", FINITE)
@pytest.mark.parametrize(("epsilon", "beta"), CASES)
def test_every_pair_of_small_neighbours_is_private_when_one_is_replaced(
    name: str, epsilon: float, beta: float
) -> None:
    """Exhaustive over histograms of five records in four bins, in rational arithmetic."""
    mechanism = finite(name, bins=4, budget=epsilon, beta=beta)
    assert mechanism.privacy.epsilon is not None
    assert mechanism.privacy.epsilon <= epsilon
    for rank in (3, 4):
        if name == "dpcp" and mechanism.target(rank) >= 5:  # type: ignore[attr-defined]
            continue
        assert_private(mechanism.law, replace_pairs(5, 4, rank), mechanism.privacy.epsilon)


@pytest.mark.parametrize("name", [name for name in FINITE if name not in ("pps", "dpcp")])
@pytest.mark.parametrize(("epsilon", "beta"), CASES)
def test_every_pair_of_small_neighbours_is_private_when_one_is_added(
    name: str, epsilon: float, beta: float
) -> None:
    """Exhaustive up to five records in three bins, with a fixed rank and with one that follows
    n."""
    mechanism = finite(name, bins=3, budget=epsilon, beta=beta, adjacency=ADD_REMOVE)
    assert mechanism.privacy.epsilon is not None
    for rank_of in (lambda n: 3, lambda n: math.ceil((n + 1) * 0.7)):
        assert_private(mechanism.law, add_pairs(range(5), 3, rank_of), mechanism.privacy.epsilon)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_every_pair_is_private_without_a_beta(epsilon: float) -> None:
    """Exhaustive, for a public rank and for the averaged rank, which follows n."""
    mechanism = RankExponential(bins=3, epsilon=epsilon)
    assert mechanism.privacy.epsilon is not None
    assert_private(mechanism.law, replace_pairs(5, 3, 4), mechanism.privacy.epsilon)
    follows = RankExponential(bins=3, epsilon=epsilon, adjacency=ADD_REMOVE)
    pairs = add_pairs(range(6), 3, lambda n: follows.averaged_rank(n=n, alpha=0.4))
    assert_private(follows.law, pairs, mechanism.privacy.epsilon)


@pytest.mark.parametrize("name", ["rank-exponential", "pps", "dpcp"])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_large_neighbours_are_private_where_the_total_moves_most(name: str, epsilon: float) -> None:
    """Many empty bins all on one side of the target move the total against one bin; the loss stays
    below and near the claim."""
    bins, n, rank = 1_000, 1_000, 600
    mechanism = finite(name, bins=bins, budget=epsilon, beta=0.05)
    target = (
        rank - 1 + mechanism.margin
        if isinstance(mechanism, RankExponential)
        else mechanism.target(rank)  # type: ignore[attr-defined]
    )
    pairs = []
    for short in (-1, 0, 1, 2):
        for first in (1, bins // 2, bins - 2):
            counts = np.zeros(bins, dtype=np.int64)
            counts[0], counts[first], counts[-1] = target - short - 1, 1, n - target + short
            nearer = counts.copy()
            nearer[[0, -1]] += [1, -1]
            pairs.append((on_grid(counts), rank, on_grid(nearer), rank))
    claimed = mechanism.privacy.epsilon
    assert claimed is not None
    worst = assert_private(mechanism.law, iter(pairs), claimed)
    if name == "rank-exponential":
        assert log_up(worst) >= 0.9 * epsilon


def one_in_the_middle(
    n: int, bins: int, low: int
) -> Iterator[tuple[Histogram, int, Histogram, int]]:
    """All but a few records in the first bin, the rest in the last; one moves from last to
    first."""
    counts = np.zeros(bins, dtype=np.int64)
    counts[0], counts[-1] = low, n - low
    moved = counts.copy()
    moved[[0, -1]] += [1, -1]
    yield on_grid(counts), 1, on_grid(moved), 1


def test_the_sensitivity_missing_from_pps_is_caught() -> None:
    """exp(-epsilon w/2) as printed breaks epsilon on a handful of records; with Delta the same
    check passes."""
    q, epsilon = 0.8, 1.0
    delta = max(1 / q, 1 / (1 - q))
    printed = exponential_law(
        lambda before, upto, n: -epsilon / 2 * max(before / q, (n - upto) / (1 - q))
    )
    mended = exponential_law(
        lambda before, upto, n: -epsilon / (2 * delta) * max(before / q, (n - upto) / (1 - q))
    )
    assert_private(mended, replace_pairs(5, 4, 1), epsilon)
    with pytest.raises(AssertionError, match="loss"):
        assert_private(printed, replace_pairs(5, 4, 1), epsilon)


@pytest.mark.parametrize(("n", "low", "at_least"), [(300, 292, 4), (200, 195, 500)])
def test_the_normaliser_of_the_pps_code_is_caught(n: int, low: int, at_least: float) -> None:
    """min(alpha, 1 - alpha) in place of 1 - q lets the loss explode as q nears 1 (alpha = 0.1, m =
    1,000, q at most 0.9999)."""
    alpha, epsilon, bins = 0.1, 1.0, 1_000
    gamma = pps_gamma(n=n, alpha=alpha, epsilon=epsilon)
    q = (n + 1) * (1 - alpha) / (n * (1 - gamma * alpha)) + 2 / (epsilon * n) * math.log(
        bins / (gamma * alpha)
    )
    q = min(q, 0.9999)
    faulty = exponential_law(
        lambda before, upto, n: -epsilon * alpha / 2 * max(before / q, (n - upto) / (1 - q))
    )
    for one, r, other, s in one_in_the_middle(n, bins, low):
        assert log_up(worst_loss(faulty(one, r), faulty(other, s))) >= at_least
    with pytest.raises(AssertionError, match="loss"):
        assert_private(faulty, one_in_the_middle(n, bins, low), epsilon)
    pps, rank = (
        Pps(bins=bins, epsilon=epsilon, beta=gamma * alpha),
        pps_rank(n=n, alpha=alpha, gamma=gamma),
    )
    for at in (n // 2, low - 1, low, n - 2):
        assert_private(lambda made, _: pps.law(made, rank), one_in_the_middle(n, bins, at), epsilon)


def test_a_query_noise_of_half_the_scale_is_caught() -> None:
    """Above-threshold that spends epsilon on the counts and half of it on the threshold is not
    epsilon-DP, and is seen."""

    class Careless(AboveThreshold):
        @property
        def noise(self) -> LaplaceTail:
            return LaplaceTail(exp_below(self.epsilon))

        @property
        def numerator(self) -> int:
            return math.ceil((1 << 64) / exp_below(self.epsilon / 2))

    with pytest.raises(AssertionError, match="loss"):
        assert_private(Careless(bins=4, epsilon=2.0, beta=0.9).law, replace_pairs(5, 4, 3), 2.0)
