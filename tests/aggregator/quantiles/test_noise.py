import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from confide.aggregator.quantiles.base import (
    REPLACE_ONE,
    Privacy,
)
from confide.aggregator.quantiles.gaussian import GaussianSearch, NoisyMidpoint
from confide.aggregator.quantiles.noise import LaplaceTail, two_sided_geometric
from confide.aggregator.quantiles.weights import START, falling
from confide.protocol.exact.exponentials import exp_below
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.truth.known import assert_follows
from tests.support.truth.quantiles import FINITE, GAUSSIAN, finite, make, on_grid


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
