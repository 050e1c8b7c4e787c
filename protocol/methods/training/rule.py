"""The batch and the learning rate that a training has unless its operator gives others.

Both follow from public numbers alone: the records and owners that are expected, and the noise. They
are rules of thumb (docs/training.md says on what data they were found); no promise rests on them.
"""

import math
from collections.abc import Mapping
from typing import Any

from confide.protocol.errors import BadInput
from confide.protocol.methods.base import AUTOMATIC

# How far the noise of a step moves the weights, in L2 norm, averaged over owners.
NOISE_LENGTH = 0.75


def usual_batch(*, sampling_rate: float, records: int, owners: int) -> float:
    """The records that join a step at an owner of the average size."""
    return max(1.0, sampling_rate * records / owners)


def usual_rate(
    *,
    noise_multiplier: float,
    size: int,
    owners: int,
    clip: float,
    batch: float,
    length: float = NOISE_LENGTH,
) -> float:
    """The learning rate at which the noise of a step moves `size` weights by `length`.

    The noise of an owner has the standard deviation clip z in every coordinate of a sum; the sum is
    divided by `batch`, and averaging over m owners divides the deviation by sqrt(m):

        length = rate clip z sqrt(size / m) / batch
    """
    return length * batch / (clip * noise_multiplier * math.sqrt(size / owners))


def by_the_rule(
    settings: Mapping[str, Any], *, noise_multiplier: float, size: int
) -> dict[str, Any]:
    """The batch and learning rate of settings, in which either may be `auto`."""
    batch, rate = settings["batch"], settings["learning-rate"]
    if AUTOMATIC not in (batch, rate):
        return {"batch": float(batch), "learning_rate": float(rate)}
    owners = int(settings.get("owners") or 0)
    if owners < 1:
        raise BadInput(
            "batch or learning-rate is 'auto' and owners is not given; accepted is the number of "
            "owners that are expected, or numbers for both"
        )
    if batch == AUTOMATIC:
        batch = usual_batch(
            sampling_rate=float(settings["sampling-rate"]),
            records=int(settings["expected"]),
            owners=owners,
        )
    if rate == AUTOMATIC:
        rate = usual_rate(
            noise_multiplier=noise_multiplier,
            size=size,
            owners=owners,
            clip=float(settings["clip"]),
            batch=float(batch),
        )
    return {"batch": float(batch), "learning_rate": float(rate)}
