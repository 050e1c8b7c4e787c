import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.cards.contracts.clauses import judge
from confide.aggregator.cards.contracts.contract import Configuration, Contract
from confide.aggregator.quantiles.histogram import (
    Histogram,
    conformal_rank,
)
from confide.aggregator.quantiles.published import Dpcp
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.aggregator.quantiles.weights import bin_weights, exact_law
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.truth.quantiles import (
    FINITE,
    compositions,
    exponential_law,
    finite,
    make,
    on_grid,
    worst_for_coverage,
)

CERTIFIED = [name for name in FINITE if name != "dpcp"]


def below_rank(law: list[Fraction], made: Histogram, rank: int) -> Fraction:
    """The exact probability of a threshold below the rank-th score."""
    return sum(law[: made.bin_of(rank)], Fraction(0))


def above_inflation(law: list[Fraction], made: Histogram, rank: int) -> Fraction:
    return sum(law[made.bin_of(rank) + 1 :], Fraction(0))


def tied_histograms(bins: int, n: int) -> list[Histogram]:
    """Spread, one tie, a tie just below the rank that matters, a tie just above it, two ties, empty
    middles."""
    rng = np.random.default_rng(3)
    made = [
        rng.multinomial(n, np.full(bins, 1 / bins)),
        rng.multinomial(n, rng.dirichlet(np.full(bins, 0.05))),
    ]
    for at, share in (
        (0, 1.0),
        (bins - 1, 1.0),
        (bins // 2, 1.0),
        (0, 0.6),
        (bins - 2, 0.9),
        (0, 0.89),
        (0, 0.899),
        (1, 0.5),
    ):
        counts = np.zeros(bins, dtype=np.int64)
        counts[at] += int(share * n)
        counts[-1] += n - int(share * n)
        made.append(counts)
    return [on_grid(counts) for counts in made]


@pytest.mark.parametrize("name", CERTIFIED)
@pytest.mark.parametrize(("epsilon", "beta"), [(0.5, 0.1), (2.0, 0.01), (8.0, 1e-3)])
def test_both_sides_of_the_certificate_hold_in_the_law(
    name: str, epsilon: float, beta: float
) -> None:
    """On spread and tied histograms the exact probability of failing is at most beta, below and
    above."""
    mechanism = finite(name, bins=12, budget=epsilon, beta=beta)
    n, rank = 200, 180
    ranks = mechanism.inflation(n=n, rank=rank)
    assert ranks is not None
    for made in tied_histograms(12, n):
        law = mechanism.law(made, rank)
        assert sum(law) == 1
        assert below_rank(law, made, rank) <= Fraction(beta)
        assert above_inflation(law, made, rank + ranks) <= Fraction(beta)


@pytest.mark.parametrize("name", CERTIFIED)
def test_no_small_histogram_breaks_the_guarantee(name: str) -> None:
    """Exhaustive: over every histogram of six records in four bins the threshold is too low with
    probability at most beta."""
    mechanism = finite(name, bins=4, budget=4.0, beta=0.2)
    for rank in (3, 4, 6):
        for counts in compositions(6, 4):
            made = on_grid(counts)
            assert below_rank(mechanism.law(made, rank), made, rank) <= Fraction(0.2)


def test_the_margin_of_rank_exponential_is_the_least_that_holds() -> None:
    """On the worst histogram the failure is at most beta with the margin, and above it with one
    rank less."""
    for bins, epsilon, beta in ((16, 1.0, 0.05), (1_000, 1.0, 1e-3), (4_096, 4.0, 1e-4)):
        mechanism = RankExponential(bins=bins, epsilon=epsilon, beta=beta)
        made = worst_for_coverage(bins, 5_000, 4_000)
        assert below_rank(mechanism.law(made, 4_000), made, 4_000) <= Fraction(beta)
        low, after = mechanism._tables
        lower = bin_weights(made.cumulative, 4_000 - 2 + mechanism.margin, low=low, after=after)
        assert below_rank(exact_law(lower), made, 4_000) > Fraction(beta)
        assert mechanism.margin <= math.ceil(2 / epsilon * math.log(bins / beta))


def test_the_plain_utility_loses_the_guarantee_to_a_tie() -> None:
    """With -|N_j - t| a tie far larger than the margin makes the bins below it win; the interval
    form keeps beta."""
    bins, n, rank, epsilon, beta = 64, 1_000, 500, 1.0, 1e-3
    margin = math.ceil(2 / epsilon * math.log(bins / beta))
    counts = np.zeros(bins, dtype=np.int64)
    counts[0], counts[bins // 2], counts[-1] = rank - 1, n - rank - 99, 100
    made = on_grid(counts)
    plain = exponential_law(lambda before, upto, n: -epsilon / 2 * abs(upto - (rank - 1 + margin)))
    assert below_rank(plain(made, rank), made, rank) > Fraction(9, 10)
    kept = RankExponential(bins=bins, epsilon=epsilon, beta=beta)
    assert below_rank(kept.law(made, rank), made, rank) <= Fraction(beta)


def test_dpcp_says_that_it_is_not_certified_and_is_right() -> None:
    """On a histogram with a gap below the rank DPCP's threshold is too low nine times in ten."""
    made = worst_for_coverage(4_096, 1_000, 900)
    mechanism = Dpcp(bins=4_096, epsilon=1.0)
    assert below_rank(mechanism.law(made, 900), made, 900) > Fraction(9, 10)
    assert mechanism.certificate.startswith("not certified")


HISTOGRAMS = (
    st.lists(st.integers(0, 60), min_size=16, max_size=16)
    .filter(lambda counts: sum(counts) >= 10)
    .map(on_grid)
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    made=HISTOGRAMS,
    level=st.floats(0.5, 0.95),
    name=st.sampled_from(CERTIFIED),
    seed=st.integers(0, 10**6),
)
def test_inflation_is_within_its_certificate(
    made: Histogram, level: float, name: str, seed: int
) -> None:
    """CARD Proposition 5.2: 0 <= threshold - non-private grid threshold <= W, except with
    probability 2 beta (1e-7 here)."""
    mechanism = make(name, bins=16, budget=4.0, beta=5e-8)
    rank = min(conformal_rank(n=made.n, level=level), made.n)
    inflated = (
        mechanism.release(made, rank, SeededEntropy(seed)).threshold - made.grid[made.bin_of(rank)]
    )
    assert 0 <= inflated <= mechanism.width(made, rank) + 1e-12


@settings(max_examples=40, deadline=None, derandomize=True)
@given(made=HISTOGRAMS, name=st.sampled_from(CERTIFIED))
def test_width_never_grows_with_epsilon(made: Histogram, name: str) -> None:
    """CARD Remark 5.3: on fixed counts a larger budget cannot widen the certificate."""
    rank = math.ceil(0.8 * made.n)
    widths = [
        make(name, bins=16, budget=epsilon, beta=0.01).width(made, rank)
        for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    ]
    assert all(wide >= narrow for wide, narrow in itertools.pairwise(widths))


@pytest.mark.parametrize("tied", [1, 2, 4])
@pytest.mark.parametrize("name", CERTIFIED)
def test_coverage_is_at_most_what_cards_say(name: str, tied: int) -> None:
    """PPS Theorem 3: the exact chance that a new score is covered, over exchangeable scores of
    which so many lie in each bin, is at most the number of the card and the share of one bin; it is
    not that without the inflation."""
    n, bins, beta, rank = 31, 64, 0.05, 20
    mechanism = finite(name, bins=bins, budget=8.0, beta=beta)
    contract = Contract(
        "bound", coverage=0.5, beta=beta, epsilon_train=0, epsilon_calibration=8, delta=0
    )
    found = judge(contract, Configuration(name, rank / (n + 1), n, bins, 0.0, 0.0, 8.0))
    assert (found["rank"], found["inflation_ranks"]) == (rank, mechanism.inflation(n=n, rank=rank))
    spread = np.zeros(bins, dtype=np.int64)
    spread[: 2 * (n + 1) // tied : 2] = tied
    covered = Fraction(0)
    for place in np.flatnonzero(spread).tolist():
        others = spread.copy()
        others[place] -= 1
        own = sum(mechanism.law(on_grid(others), rank)[place:], Fraction(0))
        covered += own * Fraction(tied, n + 1)
    assert covered <= Fraction(found["coverage_at_most"]) + Fraction(tied, n + 1)
    assert covered >= Fraction(rank, n + 1) - Fraction(beta)
    assert covered > Fraction(rank, n + 1) + Fraction(1, 2 * (n + 1))
