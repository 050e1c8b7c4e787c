import math

import numpy as np
import pytest

from confide.aggregator.procedures.full_data.published_bounds import (
    Smoothness,
    theorem_12,
    theorem_15,
)
from confide.protocol.errors import BadInput
from confide.protocol.privacy.losses import SampledGaussian


def test_theorem_12_by_hand() -> None:
    """Both sides at epsilon 0 are those of conformal prediction up to 1/(n+1), and at epsilon 1 the
    published numbers."""
    plain = theorem_12(alpha=0.1, epsilon=0.0, delta=0.0, n=99)
    assert (plain.lower, plain.upper) == pytest.approx((0.89, 0.92))
    one = theorem_12(alpha=0.1, epsilon=1.0, delta=1e-3, n=999)
    assert one.lower == pytest.approx(0.9 - math.e / 1000)
    assert one.upper == pytest.approx(
        1 - 0.1 * math.exp(-2) + math.exp(-1) * (1e-3 * (1 + math.exp(-1)) + 2e-3)
    )
    assert "no two scores are equal" in one.assumes
    far = theorem_12(alpha=0.1, epsilon=9.0, delta=1e-3, n=999)
    assert (far.lower, far.upper) == (0.0, 1.0)


def test_theorem_15_by_hand() -> None:
    """1 - alpha - sqrt(log(2/xi)/(2n)), and a failure probability of at most one half."""
    bound = theorem_15(alpha=0.1, n=1_000, failure=0.05)
    assert bound.lower == pytest.approx(0.9 - math.sqrt(math.log(40) / 2_000))
    assert (bound.upper, bound.failure) == (None, 0.05)
    for failure in (0.0, 0.6, math.nan):
        with pytest.raises(BadInput, match=r"at most 0\.5"):
            theorem_15(alpha=0.1, n=1_000, failure=failure)


CONSTANTS = Smoothness(1.0, 2.0, smoothness=3.0, rate=1e-4, clip=0.5)
TRAINING = SampledGaussian(2.0, 0.1, 500)


def test_theorem_4_by_hand() -> None:
    """The published expression, its sigma being noise multiplier times clip, and the constants of
    Corollary 2 from the distance of this training."""
    published = CONSTANTS.published_distance(TRAINING, n=999, weights=25)
    assert published == pytest.approx(
        (1 - 0.9**1000) / (1000 * 3) * (2 * 0.5 + 2.0 * 0.5 * 5) * math.expm1(1e-4 * 3 * 500)
    )
    mean = CONSTANTS.distance(TRAINING, n=999)
    assert mean == pytest.approx(0.5 / (999 * 3) * (1.0003**500 - 1))
    assert mean < published
    found = CONSTANTS.stability(TRAINING, n=999)
    assert (found.lipschitz, found.density) == (1.0, 2.0)
    assert (found.distance, found.probability) == pytest.approx((mean ** (2 / 3), mean ** (1 / 3)))


def coupled(*, rate: float, clip: float, n: int, steps: int, drawn: float) -> float:
    """The mean distance of two coupled trainings on -1/2 (w - z)^2, which is 1-smooth and drives
    weights apart, with one record far off."""
    rng, distances = np.random.default_rng(1), []
    records = np.append(np.full(n, 0.3), -50.0)
    for _ in range(300):
        one = other = 0.0
        for _ in range(steps):
            joins = rng.random(n + 1) < drawn
            noise = rng.normal()
            gradients = [
                np.clip(records[joins & mask] - weight, -clip, clip).sum() + noise
                for weight, mask in ((one, np.arange(n + 1) < n), (other, np.full(n + 1, True)))
            ]
            one, other = (
                weight - rate * gradient / (n * drawn)
                for weight, gradient in zip((one, other), gradients, strict=True)
            )
        distances.append(abs(one - other))
    return float(np.mean(distances))


def test_the_distance_bounds_a_training_and_is_not_far_off() -> None:
    """On a loss as bad as its smoothness allows, coupled trainings are within the bound, and so
    near it that one for half the clip or half the steps would be passed."""
    constants = Smoothness(1.0, 1.0, smoothness=1.0, rate=0.05, clip=2.0)
    found = coupled(rate=0.05, clip=2.0, n=50, steps=20, drawn=0.2)
    bound = constants.distance(SampledGaussian(1.0, 0.2, 20), n=50)
    assert 0.8 * bound < found <= bound
    assert found > 1.5 * constants.distance(SampledGaussian(1.0, 0.2, 10), n=50)


def test_constants_that_say_nothing_are_refused() -> None:
    """A distance of 1 or more bounds nothing, and 0 or infinite constants are none."""
    with pytest.raises(BadInput, match="makes no bound"):
        Smoothness(1.0, 1.0, smoothness=10.0, rate=1.0, clip=1.0).stability(TRAINING, n=1_000)
    with pytest.raises(BadInput, match="smoothness is 0"):
        Smoothness(1.0, 1.0, smoothness=0.0, rate=1.0, clip=1.0)
