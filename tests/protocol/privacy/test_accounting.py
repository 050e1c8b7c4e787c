import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.analysis import gdp
from scipy.stats import norm

from confide.protocol.errors import BadInput
from confide.protocol.privacy import losses as mechanisms
from confide.protocol.privacy.budgets import (
    Budget,
    affordable_steps,
    noise_multiplier,
    remaining,
)
from confide.protocol.privacy.losses import (
    AccountedMechanism,
    DiscreteGaussian,
    Gaussian,
    Pure,
    SampledGaussian,
)
from confide.protocol.privacy.profiles import PLD, RDP, Profile, gaussian_delta, parallel
from confide.protocol.privacy.transfer import best_point, miss_bound
from tests.support.mutants import mutant

DELTA = 1e-5
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


def profile(*mechanisms: AccountedMechanism) -> Profile:
    return Profile().then(*mechanisms)


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
