"""Discrete Gaussian noise is charged for what its lattice adds to a continuous one."""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from confide.protocol.privacy import losses as mechanisms
from confide.protocol.privacy.losses import (
    AccountedMechanism,
    DiscreteGaussian,
    Gaussian,
    Pure,
    SampledGaussian,
)
from confide.protocol.privacy.profiles import PLD, RDP
from tests.support.cards.mutants import mutant
from tests.support.truth.accounting import DELTA, profile


def test_discrete_gaussian_counts_cost_what_their_exact_law_says() -> None:
    """One count's delta is at least the sum over the integers; it nears the continuous Gaussian's
    for wide noise."""
    x = np.arange(-200, 202)
    law = np.exp(-(x**2) / (2 * 5.0**2))
    law /= law.sum()
    for epsilon in (0.0, 0.1, 0.4):
        exact = float(np.maximum(law[1:] - math.exp(epsilon) * law[:-1], 0).sum())
        assert exact <= profile(DiscreteGaussian(5.0)).delta(epsilon) <= 1.01 * exact + 1e-9
    assert profile(DiscreteGaussian(50.0, 25)).epsilon(DELTA) == pytest.approx(
        profile(Gaussian(0.1)).epsilon(DELTA), rel=0.02
    )


def rounded_and_discrete(sigma: float, reach: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """P(round(N(0, sigma^2)) = x) and the discrete Gaussian for |x| <= reach, to 30 digits."""
    with mpmath.workdps(60):
        wide, x = mpmath.mpf(sigma), range(-reach, reach + 1)
        edges = [mpmath.ncdf((i - mpmath.mpf("0.5")) / wide) for i in range(-reach, 1)]
        left = [edges[i + 1] - edges[i] for i in range(reach)]
        rounded = [*left, 1 - 2 * edges[-1], *reversed(left)]
        mass = mpmath.fsum(
            mpmath.exp(-mpmath.mpf(i**2) / (2 * wide**2))
            for i in range(-60 - 15 * reach, 61 + 15 * reach)
        )
        return np.array(rounded), np.array(
            [mpmath.exp(-mpmath.mpf(i**2) / (2 * wide**2)) / mass for i in x]
        )


def assert_slack_bounds_the_ratio(module: ModuleType) -> None:
    """One noise: log(R/G) lies between -b1 and b2 wherever |x| is within the norm that all but
    e^-tail of R has."""
    for sigma in (1.0, 2.5, 8.0):
        rounded, discrete = rounded_and_discrete(sigma, math.ceil(13 * sigma))
        for tail in (1.0, 10.0, 60.0):
            before, after = module.lattice_slack(sigma=sigma, steps=1, weights=1, tail=tail)
            norm = sigma * math.sqrt(1 + 2 * math.sqrt(tail) + 2 * tail) + 0.5
            inside = np.abs(np.arange(len(rounded)) - len(rounded) // 2) <= norm
            with mpmath.workdps(60):
                ratios = [
                    mpmath.log(r / g)
                    for r, g in zip(rounded[inside], discrete[inside], strict=True)
                ]
                assert 1 - mpmath.fsum(rounded[inside]) <= math.exp(-tail)
                assert -before <= min(ratios)
                assert max(ratios) <= after


def assert_slack_covers_discrete_noise(slack: Callable[..., tuple[float, float]]) -> None:
    """Two weights, one sampled step: the profile of discrete noise, by summation, is at most that
    of rounded noise with the slack, in both directions."""
    for sigma, shift, rate in ((1.0, (1, 1), 0.3), (1.5, (2, 1), 1.0), (3.0, (2, -3), 0.5)):
        reach = math.ceil(9 * sigma) + 3
        for_both = []
        for law in rounded_and_discrete(sigma, reach):
            one = law.astype(np.float64)
            moved = np.outer(*(np.roll(one, s) for s in shift))
            for_both.append((np.outer(one, one), (1 - rate) * np.outer(one, one) + rate * moved))
        for upper, lower in ((0, 1), (1, 0)):
            for epsilon in np.linspace(-0.5, 3, 36).tolist():
                before, after = slack(
                    sigma=sigma, steps=1, weights=2, tail=30.0 + max(epsilon, 0.0)
                )
                rounded, discrete = (
                    float(np.maximum(pair[upper] - math.exp(at) * pair[lower], 0).sum())
                    for pair, at in zip(for_both, (epsilon - before - after, epsilon), strict=True)
                )
                assert discrete <= math.exp(before) * rounded + math.exp(-30) + 1e-13


def test_discrete_noise_costs_at_most_rounded_noise_and_the_slack() -> None:
    """The slack holds for one noise value by value, and for a sampled step with two weights event
    by event; without it the profile of rounded noise is too small."""
    assert_slack_bounds_the_ratio(mechanisms)
    assert_slack_covers_discrete_noise(mechanisms.lattice_slack)
    with pytest.raises(AssertionError):
        assert_slack_covers_discrete_noise(lambda **_: (0.0, 0.0))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("24 * sigma**2", "25 * sigma**2", id="a constant too small"),
        pytest.param("return noises / unit, norm", "return 0.0, norm", id="nothing for the centre"),
        pytest.param(
            "norm**2 / unit + noises * 3", "1 / unit + noises * 3", id="one standard deviation only"
        ),
        pytest.param("+ 2 * tail)", ")", id="too short a norm"),
    ],
)
def test_planted_mistakes_in_the_slack_are_caught(old: str, new: str) -> None:
    """A smaller slack fails on one noise already."""
    with pytest.raises(AssertionError):
        assert_slack_bounds_the_ratio(mutant(mechanisms, old, new))


@pytest.mark.parametrize("accountant", [PLD, RDP])
def test_trainings_pay_for_their_lattice(accountant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the lattice in use the slack is below 1e-9 of epsilon; on one of 2^18 units it is the
    slack and to be seen, beside other mechanisms too; where noise is finer than the lattice nothing
    is claimed."""
    training = SampledGaussian(1.0, 0.01, 1000)

    def found(*others: AccountedMechanism) -> float:
        return profile(training, *others).epsilon(DELTA, accountant=accountant)

    fine, fine_both = found(), found(Pure(0.5))
    monkeypatch.setattr(mechanisms, "CLIP_UNITS", 1 << 60)
    assert 0 <= fine - found() <= 1e-9 + 2e-7 * (accountant == PLD)
    monkeypatch.setattr(mechanisms, "CLIP_UNITS", 1 << 18)
    slack = sum(training.slack(75.0))
    assert 1e-3 < slack < 1e-2
    # Its factor of delta costs a little epsilon as well.
    assert fine + 0.99 * slack < found() < fine + 1.2 * slack
    assert found(Pure(0.5)) > fine_both + 0.99 * slack
    monkeypatch.setattr(mechanisms, "CLIP_UNITS", 1 << 10)
    assert found() == math.inf
    assert profile(SampledGaussian(1e-12, 0.01, 1)).delta(10.0) == 1.0
