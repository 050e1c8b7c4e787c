"""Profiles of mechanisms: golden values, other accountants, closed forms, composition."""

import math

import mpmath
import numpy as np
import pytest
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.analysis import gdp
from scipy.stats import norm

from confide.protocol.errors import BadInput
from confide.protocol.privacy.budgets import Budget, remaining
from confide.protocol.privacy.losses import (
    AccountedMechanism,
    DiscreteGaussian,
    Gaussian,
    Pure,
    SampledGaussian,
)
from confide.protocol.privacy.profiles import PLD, RDP, Profile, gaussian_delta, parallel
from confide.protocol.privacy.transfer import best_point, miss_bound
from tests.support.truth.accounting import DELTA, profile

# Epsilon at 1e-5, computed once with dp_accounting at a spacing of 2e-5, finer than any used here.
GOLDEN = [
    (SampledGaussian(1.0, 0.01, 1000), 1.828237),
    (SampledGaussian(2.0, 0.1, 100), 2.337400),
    (SampledGaussian(1.5, 0.0032, 15_650), 1.144299),
]
ONE_OF_EACH: list[AccountedMechanism] = [
    Gaussian(0.5),
    DiscreteGaussian(8.0, 10),
    SampledGaussian(1.0, 0.01, 200),
    Pure(0.7),
]


@pytest.mark.parametrize(("mechanism", "expected"), GOLDEN)
def test_golden_values(mechanism: SampledGaussian, expected: float) -> None:
    """Epsilon of DP-SGD is at most 0.1% above the value of a finer grid, and not below it."""
    assert expected - 1e-6 <= profile(mechanism).epsilon(DELTA) <= 1.001 * expected


@pytest.mark.parametrize(("mechanism", "expected"), GOLDEN)
def test_other_accountants_agree(mechanism: SampledGaussian, expected: float) -> None:
    """The value lies in the interval of Opacus' PRV accountant and below its RDP accountant, which
    RDP here equals."""
    prv, rdp = PRVAccountant(), RDPAccountant()
    prv.history = rdp.history = [
        (mechanism.noise_multiplier, mechanism.sampling_rate, mechanism.steps)
    ]
    found = profile(mechanism)
    upper = prv.get_epsilon(DELTA, eps_error=0.01)
    assert upper - 0.02 <= found.epsilon(DELTA) <= upper + 1e-3
    assert found.epsilon(DELTA) < found.epsilon(DELTA, accountant=RDP)
    assert found.epsilon(DELTA, accountant=RDP) == pytest.approx(rdp.get_epsilon(DELTA), rel=1e-6)


@pytest.mark.parametrize(("mechanism", "expected"), GOLDEN)
def test_the_central_limit_estimate_is_no_bound(
    mechanism: SampledGaussian, expected: float
) -> None:
    """The CLT estimate of GDP claims less than the true loss, so it would be caught by the golden
    values."""
    claimed = gdp.compute_eps_poisson(
        steps=mechanism.steps,
        noise_multiplier=mechanism.noise_multiplier,
        sample_rate=mechanism.sampling_rate,
        delta=DELTA,
    )
    assert claimed < 0.99 * expected


def test_batches_that_are_not_poisson_samples_cost_more() -> None:
    """Taking every record in turn, or all at once, is not what the sampled mechanism accounts
    for."""
    sampled = profile(SampledGaussian(1.0, 0.01, 100)).epsilon(DELTA)
    one_epoch_of_fixed_batches = profile(Gaussian(1.0)).epsilon(DELTA)
    unsampled = profile(SampledGaussian(1.0, 1.0, 100)).epsilon(DELTA)
    assert sampled < one_epoch_of_fixed_batches / 4 < unsampled / 4


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("epsilon", [-2.0, 0.0, 1e-4, 0.3, 1.0, 8.0, 300.0])
def test_gaussian_closed_form_is_stable_and_rounded_up(mu: float, epsilon: float) -> None:
    """Doubles give what 400 digits give, and never less."""
    with mpmath.workdps(400):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
        assert (
            exact
            <= gaussian_delta(mu, epsilon)
            <= exact * (1 + mpmath.mpf("1e-8")) + mpmath.mpf("1e-307")
        )


@pytest.mark.parametrize("steps", [1, 50, 1500])
def test_convolution_stays_above_the_closed_form(steps: int) -> None:
    """Without sampling a thousand steps are one Gaussian: composing them numerically is from above
    and tight."""
    exact, convolved = Gaussian(math.sqrt(steps) / 40), profile(SampledGaussian(40.0, 1.0, steps))
    for epsilon in (0.0, 0.2, 1.0, 4.0, 7.0):
        truth = gaussian_delta(exact.mu, epsilon)
        assert truth / (1 + 2e-9) <= convolved.delta(epsilon) <= 1.01 * truth + 5e-12


@pytest.mark.parametrize("mechanism", ONE_OF_EACH)
def test_profiles_fall_and_the_two_questions_agree(mechanism: AccountedMechanism) -> None:
    """Delta falls from at most 1 to nothing as epsilon grows, and epsilon(delta) satisfies
    delta."""
    found = profile(mechanism)
    values = [found.delta(epsilon) for epsilon in np.linspace(-3, 8, 60).tolist()]
    assert max(np.diff(values)) < 1e-15
    assert values[0] <= 1.0
    assert values[-1] < 1e-9
    for delta in (1e-3, 1e-6):
        assert found.delta(found.epsilon(delta)) <= delta
        assert found.delta(0.99 * found.epsilon(delta)) > delta
        assert found.epsilon(delta) <= found.epsilon(delta, accountant=RDP)
    assert all(found.delta_added(epsilon) <= found.delta(epsilon) for epsilon in (0.0, 0.5, 2.0))


@pytest.mark.parametrize("epsilon", [-0.1, 0.0, 0.05, 0.2])
def test_directions_are_those_of_the_two_laws(epsilon: float) -> None:
    """One step without the record is N(0, 1), with it a mixture: integrals give both directions,
    and they differ."""
    x = np.linspace(-12, 14, 400_001)
    without, with_it = norm.pdf(x), 0.9 * norm.pdf(x) + 0.1 * norm.pdf(x - 1)
    added, removed = (
        float(np.maximum(upper - math.exp(epsilon) * lower, 0).sum() * (x[1] - x[0]))
        for upper, lower in ((without, with_it), (with_it, without))
    )
    found = profile(SampledGaussian(1.0, 0.1, 1))
    assert found.delta_added(epsilon) == pytest.approx(added, rel=1e-3, abs=1e-8)
    assert found.delta(epsilon) == pytest.approx(max(added, removed), rel=1e-3, abs=1e-8)
    assert abs(added - removed) > 1e-4 or epsilon == 0.0


def test_pure_mechanisms_are_charged_their_epsilon() -> None:
    """At its own epsilon a pure mechanism needs no delta; below it, randomised response says how
    much."""
    found = profile(Pure(1.0))
    assert found.delta(1.0 + 2**-11) < 2e-12
    assert found.delta(0.0) == pytest.approx((math.e - 1) / (math.e + 1), rel=1e-3)


def test_composition_is_more_than_each_and_less_than_the_sum() -> None:
    """Two mechanisms cost more than either and no more than both epsilons and deltas together,
    under either accountant."""
    training = SampledGaussian(1.0, 0.01, 500)
    for calibration in (Gaussian(0.4), DiscreteGaussian(10.0, 16), Pure(0.5)):
        for accountant in (PLD, RDP):
            both = profile(training, calibration).epsilon(DELTA, accountant=accountant)
            parts = [
                profile(part).epsilon(DELTA / 2, accountant=accountant)
                for part in (training, calibration)
            ]
            assert max(profile(part).epsilon(DELTA) for part in (training, calibration)) < both
            assert both < sum(parts)


def test_gaussian_queries_compose_exactly() -> None:
    """N queries with sigma = sqrt(N) / mu are mu-GDP, however they are grouped."""
    assert Gaussian.of(sigma=math.sqrt(12) / 0.8, queries=12).mu == pytest.approx(0.8)
    assert profile(Gaussian(0.3), Gaussian(0.4)).delta(1.0) == pytest.approx(
        gaussian_delta(0.5, 1.0)
    )


def test_disjoint_owners_cost_what_the_worst_one_costs() -> None:
    """Parallel composition is the maximum, also after a common mechanism on all records."""
    small, large = SampledGaussian(2.0, 0.01, 100), SampledGaussian(1.0, 0.02, 100)
    owners = parallel(profile(small), profile(large), profile(small))
    assert len(owners.groups) == 2
    assert owners.epsilon(DELTA) == profile(large).epsilon(DELTA)
    assert owners.then(Gaussian(0.2)).delta(0.5) == profile(large, Gaussian(0.2)).delta(0.5)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Gaussian(0.0),
        lambda: SampledGaussian(1.0, 1.5, 10),
        lambda: SampledGaussian(1.0, 0.1, 0),
        lambda: DiscreteGaussian(-1.0),
        lambda: Pure(math.nan),
        lambda: Profile(()),
        lambda: Budget(1.0, 1.0),
        lambda: profile(Gaussian(1.0)).epsilon(DELTA, accountant="gdp"),
        lambda: miss_bound(Profile(), 1.5),
        lambda: best_point(Profile(), alpha=0.1, beta=0.2),
        lambda: remaining(Budget(0.1, DELTA), Gaussian, spent=profile(Gaussian(1.0))),
    ],
)
def test_values_out_of_range_are_refused(bad: object) -> None:
    """Nothing that has no privacy meaning can be made."""
    with pytest.raises(BadInput):
        bad()  # type: ignore[operator]
