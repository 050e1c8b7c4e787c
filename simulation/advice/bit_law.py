"""The law of the threshold that bits publish, for known records: the procedure itself, many times.

Whatever the procedure's rules are, these are they. Random numbers come from a fixed seed, so that
the same question has the same answer.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.bits import procedure as bits
from confide.protocol.channels.bit import Bit
from confide.simulation.advice.curves import SizeCurve
from confide.simulation.curve_users import CurveUsers
from confide.simulation.driver import drive

Floats = NDArray[np.float64]

_SEED = 7
# After so many campaigns the law is known if the standard error of the size is at most this share.
_LOOKS, _ERROR = (24, 48, 96), 0.03


@dataclass(frozen=True)
class BitCase:
    """A campaign of bits whose law is asked for."""

    curve: SizeCurve
    n: int
    channel: Bit
    alpha: float
    delta: float


def bit_law(asked: BitCase, variant: str, *, campaigns: int) -> Floats:
    """Thresholds of campaigns of a variant; 1 where nothing is certified.

    They are as many as are asked for, or fewer that tell the mean size well enough.
    """
    found: list[float] = []
    for number in range(campaigns):
        if number in _LOOKS and _known(asked.curve.size(np.array(found))):
            break
        procedure = bits.procedure(
            variant=variant,
            channel=asked.channel,
            alpha=asked.alpha,
            delta=asked.delta,
            n=asked.n,
        )
        rng = np.random.default_rng([_SEED, number])
        users = CurveUsers(asked.n, asked.curve.coverage, rng)
        found.append(drive(procedure, users).threshold)
    return np.array(found)


def _known(sizes: Floats) -> bool:
    """Whether the standard error of the mean of these sizes is a small share of it."""
    return float(sizes.std()) <= _ERROR * math.sqrt(len(sizes)) * float(sizes.mean())
