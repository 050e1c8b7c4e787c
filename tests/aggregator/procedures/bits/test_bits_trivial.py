"""Campaigns of bits find a threshold where one can be certified, and stay within delta."""

import numpy as np
import pytest

from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.bits.one_shot import one_shot
from confide.protocol.certificate import LIARS
from confide.protocol.channels.bit import Bit
from tests.support.truth.bit_tallies import POPULATIONS, campaign
from tests.support.truth.known import assert_rare

ALPHA = DELTA = 0.1


CELLS = [
    ("steep", 50_000, 8.0),
    ("tied", 3_000, 1.0),
    ("five classes", 15_000, 0.5),
    ("plateau", 3_000, 1.0),
    ("plateau", 50_000, 4.0),
    ("heavy tail", 3_000, 1.0),
    ("mixture", 3_000, 1.0),
]


@pytest.mark.parametrize(("name", "n", "epsilon"), CELLS)
def test_a_threshold_is_found_where_one_can_be_certified(name: str, n: int, epsilon: float) -> None:
    """At most one campaign in a hundred is trivial, whether scores are steep, tied, crowd at 1 or
    stay a hair below the target (false alarm 1e-3; three in a hundred pass with
    probability 0.05)."""
    channel = Bit(epsilon=epsilon)

    def trivial(seed: int) -> bool:
        made = bits.certified(channel=channel, alpha=ALPHA, delta=DELTA, n=n)
        return campaign(made, POPULATIONS[name], n=n, seed=seed).trivial

    assert_rare(trivial, rate=0.01, other=0.03)


def test_three_in_a_hundred_are_caught_and_one_in_a_hundred_is_not() -> None:
    """The test above tells the rate it allows from one three times as large."""
    rng, caught = np.random.default_rng(1), 0
    for _ in range(40):
        assert_rare(lambda _: rng.random() < 0.01, rate=0.01, other=0.03)
        try:
            assert_rare(lambda _: rng.random() < 0.03, rate=0.01, other=0.03)
        except AssertionError:
            caught += 1
    assert caught >= 32, "a correct test catches fewer with probability 2e-4"


@pytest.mark.parametrize("lies", [0, 10])
def test_certificates_say_when_liars_speak(lies: int) -> None:
    """Where a campaign allows for lies, its certificate states what they may depend on."""
    channel, n = Bit(epsilon=4.0), 5_000
    for make in (bits.certified, one_shot, bits.published):
        made = make(channel=channel, alpha=ALPHA, delta=DELTA, n=n, max_corrupt=lies)
        found = campaign(made, POPULATIONS["uniform"], n=n, seed=1)
        assert (LIARS in found.assumptions) == bool(lies)
