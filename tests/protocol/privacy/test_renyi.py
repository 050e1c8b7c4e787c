import math
import subprocess
import sys
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from numpy.typing import NDArray

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
from tests.support.mutants import mutant

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


def laws(*, sigma: float, shift: int, sampling_rate: float) -> tuple[NDArray[Any], ...]:
    """One step on integers: without the record, with one that adds `shift`, with one that takes it
    away (worst for replacing), and with one that adds 1; logarithms of their probabilities."""
    x = np.arange(-90 * shift, 90 * shift + 1, dtype=np.float64)

    def log_law(s: int) -> NDArray[Any]:
        return -((x - s) ** 2) / (2 * sigma**2) - np.logaddexp.reduce(
            -((x - s) ** 2) / (2 * sigma**2)
        )

    def mixed(s: int) -> NDArray[Any]:
        if sampling_rate == 1:
            return log_law(s)
        return np.logaddexp(
            math.log1p(-sampling_rate) + log_law(0), math.log(sampling_rate) + log_law(s)
        )

    return log_law(0), mixed(shift), mixed(-shift), mixed(1)


def truth(order: float, p: NDArray[Any], q: NDArray[Any]) -> float:
    """The Renyi divergence of p from q, by summation."""
    return float(np.logaddexp.reduce(order * p + (1 - order) * q) / (order - 1))


SMALL = [(0.7, 1, 0.2), (1.0, 2, 0.5), (2.0, 3, 0.05), (1.5, 2, 1.0)]


def assert_covers(module: ModuleType) -> None:
    """Divergences of real pairs of laws on the integers are at most the claimed ones, both ways, at
    all orders up to 20."""
    for noise_multiplier, shift, rate in SMALL:
        without, plus, minus, other = laws(
            sigma=noise_multiplier * shift, shift=shift, sampling_rate=rate
        )
        added = module.divergences(noise_multiplier=noise_multiplier, sampling_rate=rate)
        for a, claimed in zip(range(2, 21), added, strict=False):
            if rate < 1:
                assert truth(a, plus, without) == pytest.approx(claimed, rel=1e-8)
                assert truth(a, without, plus) <= claimed
        orders, replaced = module.replaced(added)
        for order, claimed in zip(orders, replaced, strict=True):
            if order <= 20:
                for p, q in (
                    (plus, minus),
                    (minus, plus),
                    (plus, other),
                    (other, plus),
                    (plus, without),
                    (without, plus),
                ):
                    assert truth(order, p, q) <= claimed * (1 + 1e-12)


def test_claims_cover_every_pair_of_neighbours() -> None:
    """Adding or removing costs exactly what is claimed in the worse direction; replacing at most
    what is claimed."""
    assert_covers(renyi)
    assert renyi.replaced(divergences(noise_multiplier=1.0, sampling_rate=0.1))[
        0
    ].min() == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            "n / (n - 1) * added", "added", id="no factor in front of the first divergence"
        ),
        pytest.param(
            "added[m - 2] + added[n - 2]", "added[m - 3] + added[n - 3]", id="orders off by one"
        ),
        pytest.param(
            "return m * n / (m + n - 1),",
            "return m * n / (m + n - 2),",
            id="a claim for a larger order",
        ),
        pytest.param(
            "return m * n / (m + n - 1),", "return m,", id="single instead of double order"
        ),
        pytest.param("+ added[n - 2]", "", id="half of a replacement"),
        pytest.param(
            "- 1) / (2 * noise_multiplier**2)\n",
            "- 1) / (2.001 * noise_multiplier**2)\n",
            id="less a term",
        ),
        pytest.param(
            "/ (ORDERS - 1) * _ROUND_UP", "/ ORDERS * _ROUND_UP", id="divided by the order"
        ),
    ],
)
def test_planted_mistakes_are_caught(old: str, new: str) -> None:
    """Every formula that claims too little is seen by summation over the integers."""
    changed = mutant(renyi, old, new)
    with pytest.raises(AssertionError):
        assert_covers(changed)


def test_replacing_costs_more_than_adding_and_at_most_a_group_of_two() -> None:
    """Epsilon when a record is replaced lies between that of adding or removing one and the crude
    bound for two in a row."""
    for noise_multiplier, rate in ((1.0, 0.01), (4.0, 0.2), (0.5, 1e-3)):
        once, twice = (
            training_epsilon(
                noise_multiplier=noise_multiplier,
                sampling_rate=rate,
                steps=500,
                delta=delta,
                adjacency=ADD_REMOVE,
            )
            for delta in (DELTA, DELTA / 1000)
        )
        found = training_epsilon(
            noise_multiplier=noise_multiplier, sampling_rate=rate, steps=500, delta=DELTA
        )
        assert once < found < 2 * twice


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
