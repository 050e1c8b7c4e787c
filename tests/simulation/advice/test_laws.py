"""The laws of published thresholds are those of campaigns."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.labels import procedure as labels
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import auto
from confide.protocol.exact.sampling import SeededEntropy
from confide.simulation.advice.bit_law import BitCase, bit_law
from confide.simulation.advice.central_law import CountCase, central_law
from confide.simulation.advice.curves import SizeCurve, curve_of
from confide.simulation.advice.label_law import LabelCase, label_law
from confide.simulation.data.population import Predictions
from confide.simulation.data.synthetic import softmax_records
from confide.simulation.driver import BitUsers, LabelUsers, drive
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.repeated import run_trials

ALPHA = DELTA = 0.1
# A mean of campaigns is further from its expectation with probability below 1e-5.
DEVIATIONS = 4.5


@cache
def population() -> Predictions:
    return Predictions("six", *softmax_records(8_000, np.random.default_rng(3), labels=6))


@cache
def curve() -> SizeCurve:
    return curve_of(population(), "hps")


def agrees(expected: Any, found: Any) -> bool:
    """Whether mean sizes agree: within 5 %, and what chance explains."""
    sizes = curve().size(np.array(found))
    error = DEVIATIONS * sizes.std() / np.sqrt(len(sizes))
    mean = float(curve().size(np.array(expected)).mean())
    return bool(abs(mean - sizes.mean()) <= error + 0.05 * sizes.mean())


def of_bits(variant: str, n: int, epsilon: float) -> list[float]:
    """Thresholds of campaigns on records drawn from those of the curve."""
    channel, found = Bit(epsilon=epsilon), []
    given: dict[str, Any] = {"channel": channel, "alpha": ALPHA, "delta": DELTA, "n": n}
    for seed in range(30):
        rows = np.random.default_rng([seed, n]).integers(0, len(curve()), n)
        users = BitUsers(curve().own[rows], SeededEntropy("law", seed))
        found.append(drive(bits.procedure(variant=variant, **given), users).threshold)
    return found


@pytest.mark.parametrize(
    ("variant", "n", "epsilon"),
    [("certified", 2_000, 2.0), ("certified", 8_000, 1.0), ("one-shot", 8_000, 4.0)],
)
def test_bits(variant: str, n: int, epsilon: float) -> None:
    """Campaigns on tallies end where campaigns on records do; those of a third do not agree."""
    found, channel = of_bits(variant, n, epsilon), Bit(epsilon=epsilon)
    asked, third = (BitCase(curve(), m, channel, ALPHA, DELTA) for m in (n, n // 3))
    assert agrees(bit_law(asked, variant, campaigns=60), found)
    assert not agrees(bit_law(third, variant, campaigns=60), found)


def test_labels() -> None:
    """The test of campaigns on normal sums of blocks ends where it ends on reports; a law of a
    third of the records does not agree."""
    n, channel, found = 3_000, auto(k=6, epsilon=1.5), []
    for seed in range(30):
        rows = np.random.default_rng([4, seed]).integers(0, len(curve()), n)
        entropy = SeededEntropy("law", seed)
        users = LabelUsers(curve().every[rows], curve().labels[rows], entropy)
        made = labels.certified(channel=channel, alpha=ALPHA, delta=DELTA)
        found.append(drive(made, users).threshold)
    assert agrees(label_law(LabelCase(curve(), n, channel, ALPHA, DELTA), campaigns=120), found)
    assert not agrees(
        label_law(LabelCase(curve(), n // 3, channel, ALPHA, DELTA), campaigns=80), found
    )


def test_central() -> None:
    """The mechanism's law around the scatter of ranks is that of releases."""
    given: dict[str, Any] = {"n": 500, "epsilon": 0.3, "alpha": ALPHA}
    settings = {"guarantee": "PAC", "failure_probability": DELTA}
    chosen = Calibrated(
        method="central", variant="trusted", settings=settings, trials=40, seed=1, **given
    )
    rows = run_trials(population(), chosen)[0]["trials"]
    found = [row["threshold"] for row in rows]
    assert agrees(central_law(CountCase(curve(), delta=DELTA, **given)), found)
    other = given | {"n": 100}
    assert not agrees(central_law(CountCase(curve(), delta=DELTA, **other)), found)


def test_too_few_records_are_trivial() -> None:
    """Where nothing can be certified every threshold is 1, and no law fails."""
    channel = Bit(epsilon=0.5)
    for n in (20, 60):
        for variant in ("certified", "one-shot"):
            asked = BitCase(curve(), n, channel, ALPHA, 0.001)
            assert (bit_law(asked, variant, campaigns=10) == 1).all()
        of_labels = LabelCase(curve(), n, auto(k=6, epsilon=0.2), ALPHA, 0.001)
        assert (label_law(of_labels, campaigns=40) == 1).mean() > 0.9
    assert (central_law(CountCase(curve(), 20, 0.1, ALPHA, 0.001)) == 1).all()


def test_a_law_is_the_same_every_time() -> None:
    """Its random numbers come from a fixed seed, so that advice can be repeated."""
    asked = BitCase(curve(), 2_000, Bit(epsilon=1.0), ALPHA, DELTA)
    first, again = (bit_law(asked, "certified", campaigns=5) for _ in range(2))
    assert (first == again).all()
