import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from confide.aggregator.procedures.certify import (
    KEEP,
    Search,
    Stage,
    critical,
    design_stage,
    null_rate,
    tail,
)
from confide.protocol.certificate import BitRung
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput
from tests.support.truth.known import assert_rate_at_most


def exact_pmf(n: int, m0: float) -> list[Fraction]:
    p = Fraction(m0)
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


@pytest.mark.parametrize(
    ("n", "m0", "ones"), [(10, 0.7, 9), (40, 0.9, 40), (60, 0.66, 47), (5, 0.5, 0)]
)
def test_tails_are_not_below_the_exact_ones(n: int, m0: float, ones: int) -> None:
    """A tail is at least the rational sum, and within a part in 10^8 of it."""
    exact = sum(exact_pmf(n, m0)[ones:], Fraction(0))
    assert exact <= Fraction(tail(ones, n, m0)) <= exact * (1 + Fraction(1, 10**8))


@pytest.mark.parametrize(
    ("n", "m0", "level"), [(20, 0.7, 0.1), (100, 0.9, 0.05), (5, 0.9, 0.1), (300, 0.66, 1e-4)]
)
def test_the_critical_count_is_the_smallest_that_rejects(n: int, m0: float, level: float) -> None:
    """One less would be above the level; n + 1 stands for never."""
    ones = critical(level, n, m0)
    assert tail(ones, n, m0) <= level
    assert tail(ones - 1, n, m0) > level
    assert critical(0.1, 5, 0.9) == 6


def mean_level(stage: Stage) -> Fraction:
    """E[level_after] at rate m0, in rational arithmetic."""
    masses = exact_pmf(stage.n, stage.m0)
    return sum(
        (mass * Fraction(stage.level_after(ones)) for ones, mass in enumerate(masses)), Fraction(0)
    )


SHAPES = itertools.product((1, 12, 60), (0, 15, 80), (0.02, 0.1, 0.5), ((0.67, 0.25), (0.9, 0.0)))
STAGES = [(n, rest, level, m0, early) for n, rest, level, (m0, early) in SHAPES]


@pytest.mark.parametrize(("n", "rest", "level", "m0", "early"), STAGES)
def test_a_stage_never_gives_away_more_than_its_level(
    n: int, rest: int, level: float, m0: float, early: float
) -> None:
    """The mean of what a stage leaves, passes counted as 1, is at most its level, exactly; and it
    grows with the count."""
    stage = design_stage(n=n, rest=rest, level=level, m0=m0, early=early)
    assert mean_level(stage) <= Fraction(level) * (1 + Fraction(1, 10**8))
    levels = [stage.level_after(ones) for ones in range(n + 1)]
    assert levels == sorted(levels)


def test_a_planted_off_by_one_in_the_stage_is_caught() -> None:
    """A pooled count one lower, or a stop one lower, spends more than the level."""
    stage = design_stage(n=60, rest=80, level=0.1, m0=0.67, early=0.25)
    for planted in (replace(stage, pooled=stage.pooled - 1), replace(stage, stop=stage.stop - 1)):
        assert mean_level(planted) > Fraction(stage.level)


def test_a_stage_without_rest_is_the_exact_binomial_test() -> None:
    """Nothing to come: it passes exactly from the critical count on."""
    stage = design_stage(n=50, rest=0, level=0.1, m0=0.9, early=0.25)
    assert [
        stage.level_after(ones) for ones in (critical(0.1, 50, 0.9) - 1, critical(0.1, 50, 0.9))
    ] == [0.0, 1.0]


TRUE = 0.6


def false_passes(search_class: type[Search], trials: int, *, seed: int) -> int:
    """How often an adversary gets something below the true quantile certified.

    It asks up and down just below the quantile, now and then above it, and now and then says that
    nothing more will come.
    """
    rng = np.random.default_rng(seed)
    m0, failures = 0.7, 0
    for _ in range(trials):
        search = search_class(delta=0.1, m0=m0)
        for left in (3, 2, 1, 0):
            threshold = float(rng.choice([0.4, 0.45, 0.5, 0.55, 0.7]))
            if search.finished or threshold >= search.certified:
                continue
            rate = m0 - 1e-6 if threshold < TRUE else 0.8
            rest = 200 * left * int(rng.integers(0, 4) > 0)
            search.test(threshold, n=200, ones=int(rng.binomial(200, rate)), rest=rest)
        failures += search.certified < TRUE
    return failures


def test_whatever_is_asked_something_false_passes_with_at_most_delta() -> None:
    """Four adaptive stages at a rate a hair below the bound: false passes stay within delta (false
    alarm 1e-6)."""
    assert_rate_at_most(false_passes(Search, 600, seed=1), 600, 0.1)


class Forgetful(Search):
    """Planted: every stage has the whole delta again, passed or not."""

    def test(self, threshold: float, *, n: int, ones: int, rest: int) -> BitRung:
        rung = super().test(threshold, n=n, ones=ones, rest=rest)
        self._levels = [self.delta for _ in self._levels]
        return rung


def test_a_planted_search_that_forgets_levels_is_caught() -> None:
    """Starting afresh after failures multiplies the error, and the rate shows it."""
    with pytest.raises(AssertionError):
        assert_rate_at_most(false_passes(Forgetful, 600, seed=1), 600, 0.1)


def test_each_threshold_has_the_level_that_its_own_answers_left() -> None:
    """A failure moves the thresholds from there up; those below have delta, but are asked at the
    least level of all that their certificate needs; after a pass the rest is as it was."""
    search = Search(delta=0.1, m0=0.7)
    first = search.test(0.5, n=100, ones=60, rest=300)
    assert (search.level(0.5), search.level(0.9)) == (first.level_after, first.level_after)
    assert search.level(0.3) == first.level_after < 0.1
    second = search.test(0.6, n=200, ones=185, rest=200)
    assert (second.level, second.passed) == (first.level_after, True)
    assert (search.certified, search.floor) == (0.6, 0.5)
    assert search.level(0.55) == first.level_after
    assert search.test(0.5, n=200, ones=190, rest=0).passed
    assert search.level(0.4) == 0.1


def test_a_failure_never_takes_everything_while_more_is_to_come() -> None:
    """After no ones at all, a share of the level is left for a higher threshold."""
    search = Search(delta=0.1, m0=0.7)
    assert search.test(0.5, n=100, ones=0, rest=300).level_after == KEEP * 0.1
    assert search.test(0.9, n=300, ones=300, rest=0).passed


def test_the_search_refuses_to_go_where_it_may_not() -> None:
    """Nothing as high as what is certified is asked, and nothing at all once no level is left."""
    search = Search(delta=0.1, m0=0.7)
    assert search.test(0.8, n=100, ones=95, rest=300).passed
    with pytest.raises(BadInput, match="cannot be tested"):
        search.test(0.8, n=100, ones=95, rest=200)
    assert not search.test(0.5, n=100, ones=50, rest=0).passed
    assert search.finished
    with pytest.raises(BadInput, match="cannot be tested"):
        search.test(0.6, n=100, ones=100, rest=0)


def test_corrupt_answers_are_taken_off() -> None:
    """What passes with 95 ones of 100 does not when 30 of them may be lies."""
    for lies, passed in ((0, True), (30, False)):
        assert (
            Search(delta=0.1, m0=0.7, max_corrupt=lies).test(0.8, n=100, ones=95, rest=0).passed
            is passed
        )


def test_the_null_rate_is_rounded_up() -> None:
    """The rate tested against is at least the exact one of the channel's law."""
    channel = Bit(epsilon=1.0)
    assert Fraction(null_rate(channel, 0.1)) >= channel.observed(1 - Fraction(0.1))
