"""Campaigns of bits find a threshold where one can be certified, and stay within delta."""

import pytest

from confide.aggregator.procedures import bits
from confide.aggregator.procedures.one_shot import one_shot
from confide.protocol.certificate import LIARS
from confide.protocol.channels.bit import Bit
from tests.support.bit_tallies import POPULATIONS, campaign
from tests.support.known import assert_rate_at_most

ALPHA = DELTA = 0.1


@pytest.mark.parametrize(
    ("name", "n", "epsilon"),
    [
        ("steep", 50_000, 8.0),
        ("tied", 3_000, 1.0),
        ("five classes", 15_000, 0.5),
        ("five classes", 15_000, 1.0),
        ("uniform", 10_000, 1.0),
    ],
)
def test_a_threshold_is_found_where_one_can_be_certified(name: str, n: int, epsilon: float) -> None:
    """At most one campaign in a hundred is trivial (false alarm 1e-6), also where scores are steep
    or tied."""
    channel, trivial = Bit(epsilon=epsilon), 0
    for seed in range(150):
        made = bits.certified(channel=channel, alpha=ALPHA, delta=DELTA, n=n)
        found = campaign(made, POPULATIONS[name], channel=channel, n=n, seed=seed)
        trivial += found.trivial
    assert_rate_at_most(trivial, 150, 0.01)


@pytest.mark.parametrize("lies", [0, 10])
def test_certificates_say_when_liars_speak(lies: int) -> None:
    """Where a campaign allows for lies, its certificate states what they may depend on."""
    channel, n = Bit(epsilon=4.0), 5_000
    for make in (bits.certified, one_shot, bits.published):
        made = make(channel=channel, alpha=ALPHA, delta=DELTA, n=n, max_corrupt=lies)
        found = campaign(made, POPULATIONS["uniform"], channel=channel, n=n, seed=1)
        assert (LIARS in found.assumptions) == bool(lies)
