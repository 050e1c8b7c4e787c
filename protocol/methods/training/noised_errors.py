"""The loss of a training as its progress may show it: noised numbers of wrong predictions.

A loss of records is as private as they are. With a share of the budget set aside for it
(`loss-share`), each owner counts in every round how many of its records the common weights predict
wrongly, and adds discrete Gaussian noise of standard deviation `loss_noise` to that number.
Replacing a record changes a count by at most 1, so that the counts of all rounds are Gaussian
releases of sensitivity 1 (`confide.protocol.privacy.renyi`, sampling rate 1, shift 1).
"""

import math
from dataclasses import dataclass

from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.counts.queries import DEVIATIONS
from confide.protocol.privacy.losses import ADD_REMOVE
from confide.protocol.privacy.renyi import (
    LEAST_NOISE,
    MOST_NOISE,
    training_epsilon,
    training_noise,
)
from confide.protocol.wire import wire_pb2 as wire

# Above it, little is left for the training.
MOST_SHARE = 0.5


def loss_epsilon(*, noise: float, rounds: int, delta: float) -> float:
    """What the counts of all rounds cost a record that is replaced by another, rounded up.

    A count moves by at most 1 when a record is replaced, as a sum does when one is added.
    """
    return training_epsilon(
        noise_multiplier=noise, sampling_rate=1.0, steps=rounds, delta=delta, adjacency=ADD_REMOVE
    )


def loss_noise(*, epsilon: float, delta: float, rounds: int) -> float:
    """Return the least noise with which the counts of all rounds stay within (epsilon, delta).

    Without a budget there is no loss, and the noise is 0.
    """
    if not epsilon:
        return 0.0
    return training_noise(
        epsilon=epsilon, delta=delta, sampling_rate=1.0, steps=rounds, adjacency=ADD_REMOVE
    )


def check_loss(*, share: float, noise: float) -> None:
    """Refuse a share of the budget, or noise, that a loss cannot have."""
    least, most = (LEAST_NOISE, MOST_NOISE) if share else (0.0, 0.0)
    if not 0 <= share <= MOST_SHARE or not least <= noise <= most:
        raise BadInput(
            f"loss_share is {share!r} with noise {noise!r}; accepted are 0 and 0, or a share up to "
            f"{MOST_SHARE:g} and noise of {LEAST_NOISE:g} to {MOST_NOISE:g}"
        )


def explained(*, share: float, noise: float) -> tuple[str, ...]:
    """Explain to an owner what leaves for a loss."""
    if not share:
        return ()
    return (
        "In each round also leaves how many of your records the model predicts wrongly, with noise "
        f"of standard deviation {noise:.1f}; {share:.0%} of the budget pays for it.",
    )


def check_errors(records: int, errors: int, *, noise: float, most: int) -> None:
    """Refuse a noised count that an owner of at most `most` records cannot have.

    An honest one lies beyond eight standard deviations with probability below 3e-14
    (`confide.protocol.methods.counts`). Without a loss in the plan both numbers are 0.
    """
    if records > most or max(-errors, errors - records, 0) > DEVIATIONS * noise:
        raise Refused(wire.Code.OUT_OF_ALPHABET)


@dataclass(frozen=True)
class ErrorRate:
    """The share of the records of all owners that common weights predict wrongly, with noise."""

    rate: float
    # The standard deviation of the noise in it.
    deviation: float

    @staticmethod
    def of(records: int, errors: int, *, owners: int, noise: float) -> "ErrorRate | None":
        """Return the rate of a round; None if the plan asks for none, or nobody answered."""
        if not noise or not records:
            return None
        rate = min(1.0, max(0.0, errors / records))
        return ErrorRate(rate, noise * math.sqrt(owners) / records)

    def __str__(self) -> str:
        return f"{self.rate:.3f} of the records predicted wrongly (noise +-{self.deviation:.3f})"
