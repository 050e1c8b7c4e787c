import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.quantiles.above_threshold import AboveThreshold
from confide.aggregator.quantiles.base import (
    ADD_REMOVE,
    REPLACE_ONE,
    Mechanism,
    Privacy,
    PureMechanism,
)
from confide.aggregator.quantiles.gaussian import GaussianSearch, NoisyMidpoint
from confide.aggregator.quantiles.histogram import (
    Histogram,
    certified_rank,
    conformal_rank,
    histogram,
)
from confide.aggregator.quantiles.laplace_counts import LaplaceCounts
from confide.aggregator.quantiles.noise import LaplaceTail, two_sided_geometric
from confide.aggregator.quantiles.published import Dpcp, Pps, pps_gamma, pps_rank
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.aggregator.quantiles.registry import DEFAULT, MECHANISMS, automatic_bins
from confide.aggregator.quantiles.weights import START, bin_weights, exact_law, falling
from confide.protocol.errors import BadInput
from confide.protocol.exact.exponentials import exp_below, float_up, log_up
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import SeededEntropy, os_entropy
from tests.support.known import assert_follows

GAUSSIAN = ("gaussian-search", "noisy-midpoint")
UNCERTIFIED = ("dpcp", "noisy-midpoint")
FINITE = [name for name in MECHANISMS if name not in GAUSSIAN]
CERTIFIED = [name for name in FINITE if name != "dpcp"]

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
    """Every histogram of n records."""
    for bars in itertools.combinations(range(n + bins - 1), bins - 1):
        ends = (-1, *bars, n + bins - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(ends))


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


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_the_contract_of_a_mechanism(name: str) -> None:
    """A release names its bin, right edge, certificate, privacy and randomness; a seed repeats it;
    W needs a certificate."""
    mechanism = make(name, bins=64, budget=2.0, beta=1e-3)
    spread = histogram(np.random.default_rng(0).random(2_000), uniform_grid(64))
    release = mechanism.release(spread, 1_800, SeededEntropy(1))
    assert release == mechanism.release(spread, 1_800, SeededEntropy(1))
    assert release.mechanism == name == mechanism.name
    assert release.threshold == (release.bin + 1) / 64
    assert release.randomness == "seeded (simulation only)"
    assert release.rank == 1_800
    assert release.privacy == mechanism.privacy
    spent = release.privacy.rho if name in GAUSSIAN else release.privacy.epsilon
    assert spent is not None
    assert spent <= 2.0
    if name in UNCERTIFIED:
        assert (release.beta, release.inflation) == (None, None)
        assert release.certificate == "none" or release.certificate.startswith("not certified")
        with pytest.raises(BadInput, match="W needs"):
            mechanism.width(spread, 1_800)
    else:
        assert (release.beta, release.certificate) == (1e-3, "certified")
        assert 0 <= release.threshold - 0.9 <= mechanism.width(spread, 1_800) + 0.1


def test_rank_exponential_is_the_default() -> None:
    """The default is the mechanism of least inflation."""
    assert MECHANISMS[DEFAULT] is RankExponential


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


def exponential_law(weight: Callable[[int, int, int], float]) -> Law:
    """A law from log-weights of (N_{j-1}, N_j, n), to 60 digits."""

    def law(made: Histogram, rank: int) -> list[Fraction]:
        spans = list(itertools.pairwise([0, *made.cumulative.tolist()]))
        masses = {span: exp_below(weight(*span, made.n)) for span in spans}
        total = sum(masses[span] * count for span, count in Counter(spans).items())
        law = {span: mass / total for span, mass in masses.items()}
        return [law[span] for span in spans]

    return law


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
    gamma = pps_gamma(n=n, alpha=alpha, epsilon=epsilon, bins=bins)
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


def worst_for_coverage(bins: int, n: int, rank: int) -> Histogram:
    """Every bin but the last is one record short of the rank."""
    counts = np.zeros(bins, dtype=np.int64)
    counts[0], counts[-1] = rank - 1, n - rank + 1
    return on_grid(counts)


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


@pytest.mark.parametrize("name", FINITE)
def test_samplers_follow_their_law(name: str) -> None:
    """Chi-square of 6,000 seeded draws against the law; false-alarm probability 1e-9."""
    mechanism = finite(name, bins=6, budget=1.0, beta=0.5)
    made, rank = on_grid([20, 4, 3, 2, 3, 4]), 22
    law = np.array([float(p) for p in mechanism.law(made, rank)])
    entropy = SeededEntropy("law", name)
    drawn = np.bincount([mechanism.choose(made, rank, entropy) for _ in range(6_000)], minlength=6)
    kept = law * 6_000 >= 20
    assert kept.sum() >= 2
    assert_follows(drawn[kept], law[kept] / law[kept].sum())


@pytest.mark.parametrize("name", GAUSSIAN)
def test_searches_follow_the_law_of_their_noise(name: str) -> None:
    """Chi-square of 3,000 seeded searches against the product of discrete Gaussian tails;
    false-alarm probability 1e-9."""
    mechanism = make(name, bins=4, budget=0.1, beta=0.5)
    made, rank = on_grid([5, 3, 3, 3]), 8
    assert isinstance(mechanism, GaussianSearch | NoisyMidpoint)
    level = rank + (mechanism.offset if isinstance(mechanism, GaussianSearch) else 0)
    x = np.arange(-200, 201)
    mass = np.exp(-(x**2) / (2 * float(mechanism.variance)))
    reaches = [mass[x >= level - count].sum() / mass.sum() for count in made.cumulative]
    first, left, right = reaches[1], reaches[0], reaches[2]
    law = np.array(
        [first * left, first * (1 - left), (1 - first) * right, (1 - first) * (1 - right)]
    )
    entropy = SeededEntropy("search", name)
    assert_follows(
        np.bincount([mechanism.choose(made, rank, entropy) for _ in range(3_000)], minlength=4), law
    )


def test_two_sided_geometric_follows_its_law() -> None:
    """Chi-square against (3/4)^|x|; false-alarm probability 1e-9."""
    entropy = SeededEntropy("geometric")
    drawn = np.array([two_sided_geometric(3 << 62, entropy) for _ in range(10_000)])
    counts = np.array([(drawn == x).sum() for x in range(-8, 9)])
    law = 0.75 ** np.abs(np.arange(-8, 9))
    assert_follows(counts, law / law.sum())


def test_the_gaussian_offset_is_the_least_for_the_discrete_noise() -> None:
    """steps * P(Z > offset) <= beta, not with one less; up to two ranks above SCP's continuous
    formula; A has none."""
    mechanism = GaussianSearch(bins=1_000, rho=0.5, beta=1e-3)
    assert (mechanism.steps, float(mechanism.variance)) == (10, 10.0)
    x = np.arange(-400, 401)
    mass = np.exp(-(x**2) / 20)
    tail = {k: mass[x > k].sum() / mass.sum() for k in (mechanism.offset - 1, mechanism.offset)}
    assert 10 * tail[mechanism.offset] <= 1e-3 < 10 * tail[mechanism.offset - 1]
    assert 0 <= mechanism.offset - (math.sqrt(10) * 3.719 - 1) <= 2
    loose = GaussianSearch(bins=1_000, rho=0.5, variant="A")
    assert (loose.offset, loose.certificate) == (0, "asymptotic only")


def test_zcdp_converts_to_approximate_dp() -> None:
    """Below the simple rho + 2 sqrt(rho log(1/delta)) and above what GDP with mu = sqrt(2 rho) = 1
    gives (4.38)."""
    epsilon = Privacy(REPLACE_ONE, rho=0.5).epsilon_at(1e-5)
    assert 4.38 < epsilon < 0.5 + 2 * math.sqrt(0.5 * math.log(1e5))
    assert Privacy(REPLACE_ONE, epsilon=1.5).epsilon_at(1e-5) == 1.5


@pytest.mark.parametrize(
    "ratio", [exp_below(0.01), exp_below(0.5), exp_below(4.0), exp_below(20.0)]
)
def test_noise_bits_and_their_opposites_are_private(ratio: Fraction) -> None:
    """Moving a count by 1 moves the probability of the bit, and of its opposite, by at most the
    ratio, everywhere."""
    noise = LaplaceTail(ratio)
    reach = len(noise.tail) + 2
    p = [noise.probability(x) for x in range(-reach, reach + 1)]
    assert all(0 < a < 1 for a in p)
    assert max(a / b for a, b in itertools.pairwise(p)) == noise.worst <= ratio
    assert max((1 - b) / (1 - a) for a, b in itertools.pairwise(p)) == noise.worst
    exact = 1 / (1 + float(ratio))
    assert math.isclose(noise.probability(1), exact, rel_tol=1e-9)


def test_tables_fall_by_at_most_the_ratio() -> None:
    """Every step of a table, its floor included, stays within the ratio."""
    for epsilon in (0.001, 0.1, 1.0, 10.0):
        ratio = exp_below(epsilon)
        table = falling(START, ratio)
        assert table[0] == START
        assert all(b < a <= ratio * b for a, b in itertools.pairwise(table))


def test_cards_offset_is_reproduced_and_the_discrete_one_is_smaller() -> None:
    """B log(B/beta)/epsilon at B = 100, beta = 1e-3, epsilon = 1 is 1,151 (both sides); one exact
    side needs less."""
    mechanism = LaplaceCounts(bins=100, epsilon=1.0, beta=1e-3)
    assert round(mechanism.published_offset) == 1_151
    assert mechanism.raised < mechanism.published_offset < mechanism.raised + 100
    tails = [99 * mechanism.noise.probability(x) for x in (mechanism.raised + 1, mechanism.raised)]
    assert tails[0] <= Fraction(1e-3) < tails[1]


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


def test_a_release_of_a_million_bins_is_exact_and_fast() -> None:
    """With 2^20 bins the total of the weights still fits, and the guarantee holds on the worst
    histogram."""
    bins = 1 << 20
    made = worst_for_coverage(bins, 10_000, 9_000)
    mechanism = RankExponential(bins=bins, epsilon=1.0, beta=1e-3)
    weights = mechanism.weights(made, 9_000)
    assert int(weights.sum()) == sum(weights[:-1].tolist()) + int(weights[-1]) < 1 << 62
    assert int(weights[:-1].sum()) <= Fraction(1e-3) * int(weights.sum())
    assert mechanism.release(made, 9_000, SeededEntropy(0)).bin == bins - 1


def test_pps_theorem_two_is_met() -> None:
    """Gamma is at the minimum of the published level; rank and beta give (1 - beta) r/(n + 1) >= 1
    - alpha."""
    n, alpha, epsilon, bins = 1_000, 0.1, 1.0, 256
    gamma = pps_gamma(n=n, alpha=alpha, epsilon=epsilon, bins=bins)

    def level(g: float) -> float:
        return (n + 1) * (1 - alpha) / (n * (1 - g * alpha)) + 2 / (epsilon * n) * math.log(
            bins / (g * alpha)
        )

    assert level(gamma) <= min(level(gamma * 0.99), level(gamma * 1.01))
    rank = pps_rank(n=n, alpha=alpha, gamma=gamma)
    assert (1 - gamma * alpha) * rank / (n + 1) >= 1 - alpha
    target = Pps(bins=bins, epsilon=epsilon, beta=gamma * alpha).target(rank)
    assert 0 <= target - level(gamma) * n <= 2


def test_dpcp_level_is_the_published_one() -> None:
    """1 - alpha_0 = r/N + 2/(N epsilon), in whole ranks."""
    assert [Dpcp(bins=10, epsilon=epsilon).target(900) for epsilon in (0.5, 1.0, 8.0)] == [
        904,
        902,
        901,
    ]


def test_bins_are_chosen_from_public_numbers() -> None:
    """More records or more budget ask for more bins, and the choice repeats."""

    def bins(n: int, epsilon: float) -> int:
        return automatic_bins(
            lambda m: RankExponential(bins=m, epsilon=epsilon, beta=1e-3),
            n=n,
            rank=conformal_rank(n=n, level=0.9),
        )

    assert bins(500, 0.5) == bins(500, 0.5) < bins(5_000, 1.0) < bins(50_000, 8.0)


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


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: conformal_rank(n=10, level=0.95), "infeasible: level 0.95 needs rank 11 of 10"),
    (lambda: conformal_rank(n=0, level=0.5), "n is 0"),
    (lambda: conformal_rank(n=10, level=float("nan")), "level is nan"),
    (lambda: certified_rank(n=100, alpha=0.1, beta=0.1), "beta must be below alpha"),
    (lambda: certified_rank(n=100, alpha=0.1, beta=0.2), "beta is 0.2 and alpha 0.1"),
    (lambda: RankExponential(bins=4, epsilon=1.0), "needs beta"),
    (lambda: RankExponential(bins=4, epsilon=1.0, beta=float("nan")), "beta is nan"),
    (lambda: RankExponential(bins=4, epsilon=1.0, beta=1.0), "beta is 1.0"),
    (lambda: RankExponential(bins=4, epsilon=0.0, beta=0.1), "epsilon is 0"),
    (lambda: RankExponential(bins=1, epsilon=1.0, beta=0.1), "bins is 1"),
    (
        lambda: RankExponential(bins=4, epsilon=1.0, beta=0.1, adjacency="swap"),
        "adjacency is 'swap'",
    ),
    (lambda: RankExponential(bins=1 << 20, epsilon=1.0, beta=1e-9), "cannot be reached"),
    (lambda: LaplaceCounts(bins=1 << 12, epsilon=1.0, beta=1e-11), "cannot be reached"),
    (lambda: AboveThreshold(bins=1 << 12, epsilon=1.0, beta=1e-11), "cannot be reached"),
    (lambda: LaplaceCounts(bins=1 << 16, epsilon=1e-3, beta=0.1), "larger epsilon"),
    (lambda: Pps(bins=4, epsilon=1.0, beta=0.1, adjacency=ADD_REMOVE), "pps accepts replace-one"),
    (lambda: Dpcp(bins=4, epsilon=1.0, beta=0.1), "has none to keep"),
    (
        lambda: Pps(bins=2, epsilon=1.0, beta=0.1).release(on_grid([9, 1]), 3, os_entropy),
        "ranks from n/2",
    ),
    (lambda: Dpcp(bins=2, epsilon=1.0).release(on_grid([9, 1]), 9, os_entropy), "levels above 2/"),
    (
        lambda: RankExponential(bins=2, epsilon=1.0, beta=0.1).release(
            on_grid([9, 1]), 11, os_entropy
        ),
        "rank 11 of 10 records",
    ),
    (
        lambda: RankExponential(bins=2, epsilon=1.0, beta=0.1).release(
            on_grid([9, 1]), 0, os_entropy
        ),
        "rank is 0",
    ),
    (
        lambda: RankExponential(bins=3, epsilon=1.0, beta=0.1).release(
            on_grid([9, 1]), 5, os_entropy
        ),
        "made for 3",
    ),
    (lambda: GaussianSearch(bins=4, rho=0.0, beta=0.1), "rho is 0"),
    (lambda: GaussianSearch(bins=4, rho=1.0, beta=0.1, variant="B"), "variant is 'B'"),
    (lambda: GaussianSearch(bins=4, rho=1.0, variant="A", buffer=3), "buffer is 3"),
    (lambda: pps_rank(n=10, alpha=0.6, gamma=0.1), "alpha is 0.6"),
    (lambda: pps_rank(n=5, alpha=0.1, gamma=0.1), "infeasible"),
    (lambda: automatic_bins(lambda m: NoisyMidpoint(bins=m, rho=1.0), n=5, rank=6), "rank 6 of 5"),
]


@pytest.mark.parametrize(("refused", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_impossible_requests_are_refused(refused: Callable[[], Any], says: str) -> None:
    """Each refusal says what was found and what is accepted."""
    with pytest.raises(BadInput, match=says):
        refused()


def test_the_buffer_of_a_search_raises_its_threshold() -> None:
    """Variant F searches for rank + buffer."""
    spread = on_grid([10] * 64)
    plain, buffered = (
        GaussianSearch(bins=64, rho=50.0, beta=0.01, buffer=buffer) for buffer in (0, 100)
    )
    assert (
        buffered.release(spread, 320, SeededEntropy(0)).bin
        - plain.release(spread, 320, SeededEntropy(0)).bin
        == 10
    )


@pytest.mark.parametrize("beta", [1e-30, 1e-40, 1e-200])
def test_a_beta_beyond_the_table_has_an_offset_all_the_same(beta: float) -> None:
    """The offset grows as beta falls, past the twelve standard deviations that are summed."""
    offsets = [GaussianSearch(bins=64, rho=0.5, beta=value).offset for value in (1e-6, beta)]
    assert offsets[1] > offsets[0] > 0
