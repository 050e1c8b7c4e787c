"""Claimed divergences cover every pair of neighbours, whose laws are computed one by one."""

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.protocol.privacy import renyi
from confide.protocol.privacy.losses import ADD_REMOVE
from confide.protocol.privacy.renyi import divergences, training_epsilon
from tests.support.cards.mutants import mutant

DELTA = 1e-5


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
