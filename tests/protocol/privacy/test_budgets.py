"""Noise, steps and levels within a budget."""

import math

import pytest
from scipy.stats import norm

from confide.protocol.errors import BadInput
from confide.protocol.privacy.budgets import Budget, affordable_steps, noise_multiplier, remaining
from confide.protocol.privacy.losses import Gaussian, Pure, SampledGaussian
from confide.protocol.privacy.profiles import PLD, RDP, Profile
from confide.protocol.privacy.transfer import best_point, miss_bound
from tests.support.truth.accounting import DELTA, profile


@pytest.mark.parametrize("accountant", [PLD, RDP])
def test_calibrated_noise_is_within_the_budget_and_barely(accountant: str) -> None:
    """The noise found satisfies the budget, half a percent less does not, and what is left goes to
    calibration."""
    budget = Budget(1.0, DELTA, accountant)
    found = noise_multiplier(budget, sampling_rate=0.02, steps=300)
    assert budget.allows(profile(SampledGaussian(found, 0.02, 300)))
    assert not budget.allows(profile(SampledGaussian(0.995 * found, 0.02, 300)))
    half = Budget(0.5, DELTA, accountant)
    training = SampledGaussian(noise_multiplier(half, sampling_rate=0.02, steps=300), 0.02, 300)
    assert training.noise_multiplier > found
    mu = remaining(budget, Gaussian, spent=profile(training))
    assert budget.allows(profile(training, Gaussian(mu)))
    assert not budget.allows(profile(training, Gaussian(1.01 * mu)))
    pure = remaining(budget, Pure, spent=profile(training))
    assert budget.allows(profile(training, Pure(pure)))


def test_steps_within_a_budget_are_counted_exactly() -> None:
    """The last affordable step is within the budget and the next is not."""
    budget, spent = Budget(1.0, DELTA), profile(Gaussian(0.1))
    steps = affordable_steps(budget, SampledGaussian(1.0, 0.01, 5000), spent=spent)
    assert 0 < steps < 5000
    assert budget.allows(spent.then(SampledGaussian(1.0, 0.01, steps)))
    assert not budget.allows(spent.then(SampledGaussian(1.0, 0.01, steps + 1)))
    with pytest.raises(BadInput, match="exceeds"):
        affordable_steps(budget, SampledGaussian(1.0, 0.01, 5000), spent=profile(Gaussian(2.0)))


def test_the_whole_profile_moves_the_level_to_six_percent() -> None:
    """At epsilon 1 and delta 1e-5 one point of the profile allows 0.037, the whole of it about
    0.06."""
    training = profile(SampledGaussian(1.713, 0.0128, 1000))
    assert training.epsilon(DELTA) == pytest.approx(1.0, abs=2e-3)
    _, miss = best_point(training, alpha=0.1, beta=0.0)
    assert miss == pytest.approx(0.0623, abs=5e-4)
    assert math.exp(-1) * (0.1 - DELTA) == pytest.approx(0.0368, abs=1e-4)
    assert miss_bound(training, miss) == pytest.approx(0.1, abs=1e-5)


def test_miss_bound_of_a_gaussian_is_its_trade_off_curve() -> None:
    """The envelope over all epsilons is Phi(Phi^-1(miss) + mu), the best a test can do, from
    above."""
    for miss in (1e-6, 0.01, 0.3, 0.9):
        exact = norm.cdf(norm.ppf(miss) + 0.7)
        assert exact <= miss_bound(profile(Gaussian(0.7)), miss) <= exact * 1.0001
    assert miss_bound(Profile(), 0.25) == pytest.approx(0.25)
