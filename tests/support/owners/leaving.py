"""Two owners, one of which leaves a campaign of bits, with known coverage of their mixture."""

import math

import numpy as np

from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.partition import Divided
from confide.protocol.methods.parts import BitTally, PartCounter

# The owner that leaves has so much of the records, and uniform scores; those of the other are
# squares of uniform ones, so that its coverage at q is the square root.
LEAVES = 0.4


def planned_coverage(q: float, share: float = LEAVES) -> float:
    """The coverage of a mixture in which the owner that leaves has this share."""
    return share * q + (1 - share) * math.sqrt(q)


class Leaving:
    """Answers of the two owners; the first, with its share, leaves after so many rounds."""

    def __init__(self, n: int, *, rounds: int, seed: int, share: float = LEAVES) -> None:
        self._n, self._rounds, self._asked, self._share = n, rounds, 0, share
        self._rng = np.random.default_rng([seed, n, rounds])
        self.entropy = SeededEntropy("leaving", n, rounds, seed)

    def __call__(self, query: BitQuery) -> BitTally:
        size = round(self._n * query.stop) - round(self._n * query.start)
        first = self._rng.random(size) < self._share
        if self._asked >= self._rounds:
            first = np.zeros(int((~first).sum()), dtype=np.bool_)
        self._asked += 1
        u = self._rng.random(len(first))
        asked = self._rng.integers(0, len(query.thresholds), len(first))
        truth = np.where(first, u, u**2) <= np.asarray(query.thresholds)[asked]
        reports = query.channel.randomize(truth, self.entropy)
        count, counter = len(query.thresholds), PartCounter()
        counter.add(Divided((b"stays", b"leaves"), first.astype(np.int64)), asked, reports)
        answers = np.bincount(asked, minlength=count)
        ones = np.bincount(asked[reports], minlength=count)
        return BitTally(tuple(answers.tolist()), tuple(ones.tolist()), counter.parts())
