import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from confide.aggregator.quantiles.above_threshold import AboveThreshold
from confide.aggregator.quantiles.base import ADD_REMOVE
from confide.aggregator.quantiles.gaussian import GaussianSearch, NoisyMidpoint
from confide.aggregator.quantiles.histogram import certified_rank, conformal_rank, histogram
from confide.aggregator.quantiles.laplace_counts import LaplaceCounts
from confide.aggregator.quantiles.published import Dpcp, Pps, pps_gamma, pps_rank
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.aggregator.quantiles.registry import DEFAULT, MECHANISMS, automatic_bins
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import SeededEntropy, os_entropy
from tests.support.truth.quantiles import GAUSSIAN, UNCERTIFIED, make, on_grid, worst_for_coverage


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


def test_cards_offset_is_reproduced_and_the_discrete_one_is_smaller() -> None:
    """B log(B/beta)/epsilon at B = 100, beta = 1e-3, epsilon = 1 is 1,151 (both sides); one exact
    side needs less."""
    mechanism = LaplaceCounts(bins=100, epsilon=1.0, beta=1e-3)
    published = 100 * math.log(100 / 1e-3)
    assert round(published) == 1_151
    assert mechanism.raised < published < mechanism.raised + 100
    tails = [99 * mechanism.noise.probability(x) for x in (mechanism.raised + 1, mechanism.raised)]
    assert tails[0] <= Fraction(1e-3) < tails[1]


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
    gamma = pps_gamma(n=n, alpha=alpha, epsilon=epsilon)

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


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: conformal_rank(n=10, level=0.95), "infeasible: level 0.95 needs rank 11 of 10"),
    (lambda: conformal_rank(n=0, level=0.5), "n is 0"),
    (lambda: conformal_rank(n=10, level=float("nan")), "level is nan"),
    (lambda: certified_rank(n=100, alpha=0.1, beta=0.1), "beta must be below alpha"),
    (lambda: certified_rank(n=100, alpha=0.1, beta=0.2), "beta is 0.2 and alpha 0.1"),
    (lambda: AboveThreshold(bins=4, epsilon=1.0), "needs beta"),
    (lambda: make("pps", bins=4).averaged_rank(n=10, alpha=0.1), "pps needs beta"),
    (
        lambda: RankExponential(bins=1 << 20, epsilon=1e-4).averaged_rank(n=10, alpha=0.01),
        "alpha 0.01 cannot be reached with epsilon 0.0001",
    ),
    (lambda: RankExponential(bins=4, epsilon=1.0).rank(n=10, alpha=0.1), "rank 12 of 10 records"),
    (
        lambda: RankExponential(bins=4, epsilon=1.0).width(on_grid([1, 2, 3, 4]), 8),
        "W needs a certified one with a beta",
    ),
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
