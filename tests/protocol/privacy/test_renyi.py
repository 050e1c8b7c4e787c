"""Renyi divergences of trainings: an independent implementation, rounding, noise for a budget."""

import math
import subprocess
import sys
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, rdp

from confide.protocol.errors import BadInput
from confide.protocol.privacy import renyi
from confide.protocol.privacy.losses import ADD_REMOVE
from confide.protocol.privacy.profiles import gaussian_delta
from confide.protocol.privacy.renyi import (
    ORDERS,
    REPLACE_ONE,
    divergences,
    training_epsilon,
    training_noise,
)

DELTA = 1e-5
# Noise multipliers and sampling rates: hardly private, usual, hardly any loss, everybody sampled.
TRAININGS = [
    (0.2, 0.5),
    (0.6, 1e-6),
    (1.0, 0.01),
    (1.0, 0.999),
    (3.0, 0.3),
    (1e4, 1e-3),
    (2.0, 1.0),
]


def assert_like_the_library(
    module: ModuleType, noise_multiplier: float, sampling_rate: float
) -> None:
    """dp_accounting computes the same sum another way, and loses about 1e-15 of it where it is
    small."""
    event = dp_event.PoissonSampledDpEvent(
        sampling_rate, dp_event.GaussianDpEvent(noise_multiplier)
    )
    golden = np.asarray(rdp.RdpAccountant(ORDERS.astype(np.float64)).compose(event).rdp)
    found = module.divergences(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate)
    assert found == pytest.approx(golden, rel=1e-8, abs=1e-14)


@pytest.mark.parametrize(("noise_multiplier", "sampling_rate"), TRAININGS)
def test_divergences_are_those_of_an_independent_implementation(
    noise_multiplier: float, sampling_rate: float
) -> None:
    """At all integer orders from 2 to 512 the divergence of a step is dp_accounting's."""
    assert_like_the_library(renyi, noise_multiplier, sampling_rate)


@pytest.mark.parametrize(("noise_multiplier", "sampling_rate"), TRAININGS)
def test_divergences_are_rounded_up(noise_multiplier: float, sampling_rate: float) -> None:
    """They are at least the sum taken with 60 digits, and within 2e-9 of it, where doubles would
    lose all of it too."""
    found = divergences(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate)
    with mpmath.workdps(60):
        z, q = mpmath.mpf(noise_multiplier), mpmath.mpf(sampling_rate)
        for a in (2, 3, 17, 256, 511, 512):
            total = mpmath.fsum(
                mpmath.binomial(a, k)
                * (1 - q) ** (a - k)
                * q**k
                * mpmath.exp((k**2 - k) / (2 * z**2))
                for k in range(a + 1)
            )
            exact = mpmath.log(total) / (a - 1)
            assert exact <= found[a - 2] <= exact * (1 + mpmath.mpf("2e-9"))


@pytest.mark.parametrize("steps", [1, 1000])
@pytest.mark.parametrize(
    ("noise_multiplier", "sampling_rate"), [(0.8, 0.1), (1.0, 0.01), (5.0, 0.2)]
)
def test_adding_or_removing_costs_what_the_library_says(
    noise_multiplier: float, sampling_rate: float, steps: int
) -> None:
    """Epsilon when a record is added or removed is dp_accounting's at the same orders."""
    event = dp_event.PoissonSampledDpEvent(
        sampling_rate, dp_event.GaussianDpEvent(noise_multiplier)
    )
    golden = rdp.RdpAccountant(ORDERS.astype(np.float64)).compose(event, steps).get_epsilon(DELTA)
    found = training_epsilon(
        noise_multiplier=noise_multiplier,
        sampling_rate=sampling_rate,
        steps=steps,
        delta=DELTA,
        adjacency=ADD_REMOVE,
    )
    assert golden <= found <= golden * (1 + 1e-7) + 1e-11


@pytest.mark.parametrize("sigma", [0.5, 1, 3])
def test_moments_of_discrete_gaussians_are_exact_at_integer_orders_only(sigma: float) -> None:
    """E[(G_s/G_0)^k] = exp((k^2 - k) s^2/(2 sigma^2)) to 25 digits for integers k and s, by
    summation over the lattice. It fails for a shift off the lattice, and for an order that moves
    the lattice."""
    with mpmath.workdps(40):
        variance = mpmath.mpf(sigma) ** 2

        def moment(k: Any, s: Any) -> mpmath.mpf:
            around = int(k * s)
            reach = range(around - 60, around + 61)
            shifted = mpmath.fsum(
                mpmath.exp((-(x**2) + k * (2 * x * s - s**2)) / (2 * variance)) for x in reach
            )
            ratio = shifted / mpmath.fsum(
                mpmath.exp(-mpmath.mpf(x**2) / (2 * variance)) for x in range(-60, 61)
            )
            return ratio / mpmath.exp((k**2 - k) * s**2 / (2 * variance)) - 1

        for k in (-2, 2, 3, 7):
            for s in (-1, 1, 2, 4):
                assert abs(moment(k, s)) < 1e-25
        if sigma == 0.5:
            assert abs(moment(2, mpmath.mpf("0.25"))) > 1e-3
            assert abs(moment(mpmath.mpf("2.5"), 1)) > 1e-3


def test_unsampled_training_is_nearly_one_gaussian() -> None:
    """With everybody in every step, replacing moves the sum twice as far: epsilon covers that
    Gaussian's and is within a tenth of it."""
    found = training_epsilon(noise_multiplier=40.0, sampling_rate=1.0, steps=100, delta=DELTA)
    assert gaussian_delta(0.5, found) <= DELTA < gaussian_delta(0.5, 0.9 * found)


@pytest.mark.parametrize("noise_multiplier", [0.2, 1.0, 1e4])
@pytest.mark.parametrize("sampling_rate", [1e-6, 0.1, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("steps", [1, 1 << 20])
@pytest.mark.parametrize("delta", [1e-15, 1 - 1e-9])
def test_every_accepted_training_has_an_epsilon(
    noise_multiplier: float, sampling_rate: float, steps: int, delta: float
) -> None:
    """No overflow, no negative number, and a step less, more noise or a larger delta never cost
    more."""

    def epsilon(**changed: float) -> float:
        given: dict[str, Any] = {
            "noise_multiplier": noise_multiplier,
            "sampling_rate": sampling_rate,
            "steps": steps,
            "delta": delta,
        }
        return training_epsilon(**{**given, **changed})

    assert 0 <= epsilon() < math.inf
    assert epsilon() <= epsilon(steps=steps + 1)
    assert epsilon() >= epsilon(noise_multiplier=1.01 * noise_multiplier)
    assert epsilon() <= epsilon(delta=delta / 2)


@pytest.mark.parametrize(
    ("epsilon", "sampling_rate", "steps", "delta"),
    [(1.0, 0.01, 1000, 1e-5), (8.0, 0.5, 1, 1e-9), (0.5, 1e-3, 1 << 20, 1e-6)],
)
def test_noise_is_enough_and_barely(
    epsilon: float, sampling_rate: float, steps: int, delta: float
) -> None:
    """The noise found stays within the budget when a record is replaced; 0.1% less does not."""
    found = training_noise(epsilon=epsilon, delta=delta, sampling_rate=sampling_rate, steps=steps)
    given: dict[str, Any] = {"sampling_rate": sampling_rate, "steps": steps, "delta": delta}
    assert training_epsilon(noise_multiplier=found, **given) <= epsilon
    assert training_epsilon(noise_multiplier=found / 1.0011, **given) > epsilon


def test_noise_has_a_floor_and_a_ceiling() -> None:
    """A budget that any noise keeps gets 0.2; one that none up to 1000 keeps is refused with what
    was found."""
    assert training_noise(epsilon=40.0, delta=0.1, sampling_rate=1e-6, steps=1) == 0.2
    with pytest.raises(
        BadInput,
        match=r"epsilon 0\.001 with delta 1e-15 for 1048576 steps at rate 1\.0 is not reached",
    ):
        training_noise(epsilon=0.001, delta=1e-15, sampling_rate=1.0, steps=1 << 20)


@pytest.mark.parametrize(
    "changed",
    [
        {"noise_multiplier": 0.0},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": 1e7},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.1},
        {"steps": 0},
        {"steps": 1.5},
        {"delta": 0.0},
        {"delta": 1.0},
        {"adjacency": "zero-out"},
    ],
)
def test_values_out_of_range_are_refused(changed: dict[str, Any]) -> None:
    """What has no privacy meaning is refused."""
    given: dict[str, Any] = {
        "noise_multiplier": 1.0,
        "sampling_rate": 0.1,
        "steps": 10,
        "delta": DELTA,
        "adjacency": REPLACE_ONE,
    }
    training_epsilon(**given)
    with pytest.raises(BadInput, match=next(iter(changed))):
        training_epsilon(**{**given, **changed})


def test_importing_it_loads_no_library_beside_numpy() -> None:
    """A data owner's machine computes this without scipy and without an accounting library."""
    script = (
        "import sys, confide.protocol.privacy.renyi; "
        "print(sorted({'scipy', 'dp_accounting', 'torch', 'flwr'} & set(sys.modules)))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
