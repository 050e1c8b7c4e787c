"""The law of the threshold that bits publish, for known records: the procedure itself, many times.

A procedure sees tallies only, and on a known curve these are binomial. So a campaign costs the same
for any number of records, and whatever the procedure's rules are, these are they. Random numbers
come from a fixed seed, so that the same question has the same answer.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.bits import procedure as bits
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitQuery, BitTally
from confide.simulation.advice.curves import SizeCurve
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
        crowd = _Crowd(asked, np.random.default_rng([_SEED, number]))
        found.append(drive(procedure, crowd).threshold)
    return np.array(found)


def _known(sizes: Floats) -> bool:
    """Whether the standard error of the mean of these sizes is a small share of it."""
    return float(sizes.std()) <= _ERROR * math.sqrt(len(sizes)) * float(sizes.mean())


@dataclass(frozen=True)
class _Crowd:
    """Records of a known curve, evenly dealt to the thresholds of a query."""

    asked: BitCase
    rng: np.random.Generator

    def __call__(self, query: BitQuery) -> BitTally:
        first, last = (int(np.ceil(self.asked.n * at - 0.5)) for at in (query.start, query.stop))
        count = len(query.thresholds)
        places = np.arange(count + 1) * (last - first) // count
        answers = np.diff(places)
        spill, hit = (float(one) for one in (query.channel.spill, query.channel.hit))
        rates = spill + (hit - spill) * self.asked.curve.coverage(np.array(query.thresholds))
        ones = self.rng.binomial(answers, rates)
        return BitTally(tuple(answers.tolist()), tuple(ones.tolist()))
