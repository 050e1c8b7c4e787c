"""Coverage averaged over the draws of rank-exponential, by its exact law."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from confide.aggregator.quantiles.averaged import UNIT
from confide.aggregator.quantiles.base import ADD_REMOVE
from confide.aggregator.quantiles.histogram import Histogram, conformal_rank, tail_rank
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.exact.sampling import Integers
from confide.protocol.privacy.binomial import masses
from tests.support.truth.quantiles import compositions, on_grid


@dataclass(frozen=True, kw_only=True)
class Lowered(RankExponential):
    """A planted bug: the target lies some ranks too low."""

    by: int

    def averaged_rank(self, *, n: int, alpha: float | Fraction) -> int:
        return super().averaged_rank(n=n, alpha=alpha) - self.by


@dataclass(frozen=True, kw_only=True)
class Plain(RankExponential):
    """A planted bug: the distance from the target to the end of a bin, not to its ranks."""

    def weights(self, histogram: Histogram, rank: int) -> Integers:
        distance = np.abs(histogram.cumulative - rank)
        return np.array(self.low)[np.minimum(distance, len(self.low) - 1)]


def exact_miss(mechanism: RankExponential, scores: Histogram, alpha: float) -> Fraction:
    """How often the one of these n + 1 exchangeable scores that is the test score is missed.

    Every bin takes its turn, in proportion to its count; the others are the calibration set.
    """
    n = scores.n - 1
    rank, found = mechanism.rank(n=n, alpha=alpha), Fraction(0)
    for b in np.flatnonzero(scores.counts).tolist():
        others = scores.counts.copy()
        others[b] -= 1
        weights = mechanism.weights(on_grid(others), rank)
        below, total = int(weights[:b].sum()), int(weights.sum())
        found += Fraction(int(scores.counts[b]) * below, total * (n + 1))
    return found


def adversaries(n: int, bins: int, rank: int, *, step: int) -> Iterator[Histogram]:
    """n + 1 scores that leave a wide gap some ranks below the target, or several, with ties."""
    for gap in range(0, 14 * step, step):
        for second in (0, 1, 5, 40):
            counts = np.zeros(bins, dtype=np.int64)
            # All bins but the last few end `gap` ranks below the target.
            counts[0] = rank - gap
            counts[-3] = min(second, n + 1 - counts.sum())
            counts[-1] = n + 1 - counts.sum()
            yield on_grid(counts)
            yield on_grid(counts[::-1].copy())
            halved = counts.copy()
            halved[0], halved[bins // 2] = counts[0] - 2 * gap, 2 * gap
            yield on_grid(halved)
    rng = np.random.default_rng(3)
    for concentration in (0.01, 0.1, 1.0):
        share = rng.dirichlet(np.full(bins, concentration))
        yield on_grid(rng.multinomial(n + 1, share))


@pytest.mark.parametrize("bins", [3, 4])
@pytest.mark.parametrize(("epsilon", "alpha"), [(4.0, 0.4), (6.0, 0.3), (8.0, 0.2)])
def test_no_small_set_of_scores_is_missed_more_often_than_alpha(
    bins: int, epsilon: float, alpha: float
) -> None:
    """Exhaustive: all sets of n + 1 scores, ties included, by the law of the integers drawn."""
    mechanism = RankExponential(bins=bins, epsilon=epsilon)
    for n in (8, 10):
        for counts in compositions(n + 1, bins):
            assert exact_miss(mechanism, on_grid(counts), alpha) <= Fraction(str(alpha))


@pytest.mark.parametrize(("n", "epsilon"), [(300, 1.0), (1_000, 1.0), (1_000, 0.3), (5_000, 1.0)])
def test_adversaries_are_covered_and_two_planted_bugs_are_not(n: int, epsilon: float) -> None:
    """Never below 1 - alpha; a target 8/epsilon ranks lower, or the plain utility, misses more."""
    bins, alpha = 1_024, 0.1

    def worst(mechanism: RankExponential) -> Fraction:
        sets = adversaries(n, bins, mechanism.rank(n=n, alpha=alpha), step=round(1 / epsilon))
        return max(exact_miss(mechanism, made, alpha) for made in sets)

    assert worst(RankExponential(bins=bins, epsilon=epsilon)) <= Fraction("0.1")
    assert worst(Lowered(bins=bins, epsilon=epsilon, by=round(8 / epsilon))) > Fraction("0.1")
    assert worst(Plain(bins=bins, epsilon=epsilon)) > Fraction("0.1")


def test_the_bound_of_a_rank_is_attained_and_never_passed() -> None:
    """The lemma: with A scores below a bin, a lower one is drawn with probability G(A) at most.

    A scores in the first bin and the others in the last attain it, up to the rounding of 2^-64.
    """
    bins, n, rank = 64, 200, 150
    mechanism = RankExponential(bins=bins, epsilon=1.0)
    losses = [Fraction(one, UNIT) for one in mechanism._losses.units]
    rng = np.random.default_rng(1)
    for below in range(100, 150):
        bound = losses[min(rank - below, len(losses)) - 1]
        counts = np.zeros(bins, dtype=np.int64)
        counts[0], counts[-1] = below, n - below
        law = mechanism.law(on_grid(counts), rank)
        assert bound - Fraction(1, UNIT) <= sum(law[:-1]) <= bound
        split = rng.multinomial(below, rng.dirichlet(np.full(bins // 2, 0.2)))
        rest = rng.multinomial(n - below, rng.dirichlet(np.full(bins // 2, 0.2)))
        law = mechanism.law(on_grid(np.concatenate([split, rest])), rank)
        assert sum(law[: bins // 2]) <= bound


@pytest.mark.parametrize("n", [1_000, 2_000, 5_000, 10_000, 20_000, 50_000])
def test_few_ranks_above_the_non_private_one(n: int) -> None:
    """At most 10 at epsilon 1 and 1,024 bins, whatever n is; a beta of 0.001 costs 19 to 68."""
    mechanism = RankExponential(bins=1_024, epsilon=1.0)
    plain = conformal_rank(n=n, level=0.9)
    assert 0 < mechanism.rank(n=n, alpha=0.1) - plain <= 10
    kept = RankExponential(bins=1_024, epsilon=1.0, beta=1e-3)
    assert kept.rank(n=n, alpha=0.1) - 1 + kept.margin - plain >= 19


def test_a_rank_that_follows_n_rises_by_one_at_most() -> None:
    """What neighbours under add-remove need, also where n is smaller than the table is long."""
    for bins, epsilon, alpha in ((4, 0.1, 0.1), (1_024, 1.0, 0.1), (1 << 20, 0.01, 0.03)):
        mechanism = RankExponential(bins=bins, epsilon=epsilon, adjacency=ADD_REMOVE)
        ranks = [mechanism.averaged_rank(n=n, alpha=alpha) for n in range(1, 3_000)]
        assert set(np.diff(ranks)) <= {0, 1}


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_mean_inflation_is_bounded_and_nearly_attained(epsilon: float) -> None:
    """On any histogram the mean of the ranks above the target is within the bound; one of those
    that put all bins at one distance attains it up to its rounding to a whole rank."""
    bins, n, rank = 256, 2_000, 1_000
    mechanism = RankExponential(bins=bins, epsilon=epsilon)
    bound, worst = mechanism.inflation(n=n, rank=rank), Fraction(0)
    assert bound is not None
    for distance in range(1, 80):
        counts = np.zeros(bins, dtype=np.int64)
        counts[0], counts[-1] = rank - 1 + distance, n + 1 - rank - distance
        made = on_grid(counts)
        starts = np.concatenate([[0], made.cumulative[:-1]]) + 1
        above = np.maximum(starts - rank, 0).tolist()
        law = mechanism.law(made, rank)
        mean = sum((p * d for p, d in zip(law, above, strict=True)), Fraction(0))
        assert mean <= bound
        worst = max(worst, mean)
    assert worst > bound - 1


def exact_failure(
    mechanism: RankExponential, shares: tuple[Fraction, ...], *, n: int, rank: int, alpha: Fraction
) -> Fraction:
    """How often n independent scores in bins of these shares end in a coverage below 1 - alpha."""
    covered = [sum(shares[: j + 1], Fraction(0)) for j in range(len(shares))]
    first = next(j for j, share in enumerate(covered) if share >= 1 - alpha)
    found = Fraction(0)
    for counts in compositions(n, len(shares)):
        ways = math.factorial(n)
        for count in counts:
            ways //= math.factorial(count)
        chance = ways * math.prod(p**c for p, c in zip(shares, counts, strict=True))
        if chance:
            found += chance * sum(mechanism.law(on_grid(counts), rank)[:first], Fraction(0))
    return found


@pytest.mark.parametrize(("epsilon", "delta"), [(4.0, 0.3), (8.0, 0.1), (8.0, 0.05)])
def test_small_calibrations_fail_a_pac_promise_no_more_often_than_delta(
    epsilon: float, delta: float
) -> None:
    """Over all histograms of twelve independent scores, by their exact chances; populations stop
    just short of the target, in one bin or in two, or lie in ties above it."""
    mechanism, n, alpha = RankExponential(bins=3, epsilon=epsilon), 12, 0.4
    rank = mechanism.pac_rank(n=n, alpha=alpha, delta=delta)
    assert rank <= n
    short = Fraction("0.599999")
    failures = [
        exact_failure(mechanism, shares, n=n, rank=rank, alpha=Fraction("0.4"))
        for shares in (
            (short, Fraction(0), 1 - short),
            (short / 2, short / 2, 1 - short),
            (Fraction(1, 3), Fraction(1, 3), Fraction(1, 3)),
            (Fraction(0), short, 1 - short),
        )
    ]
    assert max(failures) <= Fraction(str(delta))


@pytest.mark.parametrize("n", [200, 1_000])
def test_the_worst_population_fails_about_as_often_as_delta(n: int) -> None:
    """All but a share 1 - alpha lies at the top: the failure is the bound itself, at most delta,
    and above it one rank lower."""
    bins, delta = 1_024, 0.1
    mechanism = RankExponential(bins=bins, epsilon=1.0)
    rank = mechanism.pac_rank(n=n, alpha=0.1, delta=delta)

    def failure(target: int) -> float:
        found = 0.0
        for below in range(n + 1):
            counts = np.zeros(bins, dtype=np.int64)
            counts[0], counts[-1] = below, n - below
            weights = mechanism.weights(on_grid(counts), target)
            found += float(masses(below, n, 0.9)) * int(weights[:-1].sum()) / int(weights.sum())
        return found

    assert failure(rank) <= delta < failure(rank - 1)


def test_pac_ranks_above_the_non_private_one() -> None:
    """21 ranks above the marginal rank at n = 1,000 and epsilon 1, of which 12 are not privacy's;
    a mechanism with a beta leaves the rest of delta to the calibration."""
    plain = conformal_rank(n=1_000, level=0.9)
    mechanism = RankExponential(bins=1_024, epsilon=1.0)
    assert mechanism.pac_rank(n=1_000, alpha=0.1, delta=0.1) - plain == 21
    assert tail_rank(n=1_000, alpha=0.1, delta=0.1) - plain == 12
    kept = RankExponential(bins=1_024, epsilon=1.0, beta=0.05)
    assert kept.pac_rank(n=1_000, alpha=0.1, delta=0.1) == tail_rank(n=1_000, alpha=0.1, delta=0.05)
    assert mechanism.pac_rank(n=20, alpha=0.1, delta=0.1) == 21
