"""Users of bits whose coverage at every threshold is known: tallies drawn from their law.

A procedure sees tallies only, and on a known curve these are binomial. So a campaign costs its
procedure alone, whatever the number of records.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.parts import BitTally

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CurveUsers:
    """So many users, evenly dealt to the thresholds of a query; `curve` is their coverage."""

    n: int
    curve: Callable[[Floats], Floats]
    rng: np.random.Generator

    def __call__(self, query: BitQuery) -> BitTally:
        first, last = (int(np.ceil(self.n * at - 0.5)) for at in (query.start, query.stop))
        places = np.arange(len(query.thresholds) + 1) * (last - first) // len(query.thresholds)
        answers = np.diff(places)
        spill, hit = (float(one) for one in (query.channel.spill, query.channel.hit))
        rates = spill + (hit - spill) * self.curve(np.array(query.thresholds))
        ones = self.rng.binomial(answers, rates)
        return BitTally(tuple(answers.tolist()), tuple(ones.tolist()))
