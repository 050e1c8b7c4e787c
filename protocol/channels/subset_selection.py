"""Subset selection: the report is a set of a fixed number of labels."""

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from confide.protocol.channels.base import CHUNK, Array, Flags, PairLaw, SetChannel
from confide.protocol.errors import Refused
from confide.protocol.exact.exponentials import exp_below
from confide.protocol.exact.sampling import Entropy, bernoulli, in_chunks, uniform
from confide.protocol.wire import wire_pb2 as wire

# A subset takes a step for each of its labels, for all rows of a chunk at once: with few rows a
# record of many labels would take a tenth of a second.
_LEAST_ROWS = 128


@dataclass(frozen=True)
class SubsetSelection(SetChannel):
    """Subset selection (Ye & Barg 2018): a set of `size` labels.

    The own label is in it with probability `inside / 2^64`; the others are uniform.
    """

    size: int = field(init=False)
    inside: int = field(init=False)
    name = "subset"

    def _integers(self) -> dict[str, int]:
        bound = exp_below(self.epsilon)
        size = max(1, round(self.k / (bound + 1)))
        return {
            "size": size,
            "inside": int((1 << 64) * size * bound / (size * bound + self.k - size)),
        }

    @property
    def hit(self) -> Fraction:
        return Fraction(self.inside, 1 << 64)

    @property
    def spill(self) -> Fraction:
        return (self.size - self.hit) / (self.k - 1)

    def randomize(self, values: Array, entropy: Entropy) -> Flags:
        values = self.check_labels(values)
        out = np.empty((len(values), self.k), dtype=np.bool_)

        def work(part: slice) -> None:
            own = values[part].astype(np.int64)
            # Column j stands for label own + j, so column 0 is the own label; the columns are
            # rotated back at the end.
            turned = np.zeros((own.size, self.k), dtype=np.bool_)
            turned[:, 0] = bernoulli(self.inside, own.size, entropy)
            for kept, others in ((True, self.size - 1), (False, self.size)):
                at = np.flatnonzero(turned[:, 0] == kept)
                turned[at, 1:] = uniform_subsets(at.size, entropy, items=self.k - 1, size=others)
            columns = np.arange(self.k) - own[:, None]
            columns[columns < 0] += self.k
            out[part] = np.take_along_axis(turned, columns, axis=1)

        in_chunks(work, len(values), size=max(_LEAST_ROWS, CHUNK // self.k), entropy=entropy)
        return out

    def check(self, data: bytes, n: int) -> None:
        """Refuse a report unless exactly `size` of its flags are on."""
        super().check(data, n)
        if (self.unpack(data, n).sum(axis=1) != self.size).any():
            raise Refused(wire.Code.OUT_OF_ALPHABET)

    def law(self, value: int) -> dict[tuple[bool, ...], Fraction]:
        self.check_enumerable(math.comb(self.k, self.size))
        within = self.hit / math.comb(self.k - 1, self.size - 1)
        without = (1 - self.hit) / math.comb(self.k - 1, self.size)
        return {
            tuple(label in chosen for label in range(self.k)): within
            if value in chosen
            else without
            for chosen in itertools.combinations(range(self.k), self.size)
        }

    def pair_law(self, value: int, rival: int) -> PairLaw:
        both = self.hit * Fraction(self.size - 1, self.k - 1)
        rival_only = (1 - self.hit) * Fraction(self.size, self.k - 1)
        neither = 1 - self.hit - rival_only
        law = {
            (True, True): (both, both),
            (True, False): (self.hit - both, rival_only),
            (False, True): (rival_only, self.hit - both),
            (False, False): (neither, neither),
        }
        return {outcome: pair for outcome, pair in law.items() if any(pair)}

    def support_range(self, set_size: int) -> tuple[int, int]:
        return max(0, set_size + self.size - self.k), min(set_size, self.size)

    def variance(self, set_size: float) -> float:
        """Variance of a mixture of two hypergeometric counts, by whether the own label was kept."""
        others, share = self.k - 1, Fraction(set_size - 1) / (self.k - 1)
        mean = self.hit + (self.size - self.hit) * share
        second = Fraction(0)
        for kept, chance in ((1, self.hit), (0, 1 - self.hit)):
            drawn = self.size - kept
            spread = drawn * share * (1 - share) * Fraction(others - drawn, max(others - 1, 1))
            second += chance * ((kept + drawn * share) ** 2 + spread)
        return float((second - mean**2) / (self.hit - self.spill) ** 2)


def uniform_subsets(count: int, entropy: Entropy, *, items: int, size: int) -> Flags:
    """Draw `count` uniform subsets of `size` out of `items`, as flags.

    Floyd's algorithm, with one column of draws per step.
    """
    chosen = np.zeros((count, items), dtype=np.bool_)
    rows = np.arange(count)
    for last in range(items - size, items):
        pick = uniform(last + 1, count, entropy)
        pick[chosen[rows, pick]] = last
        chosen[rows, pick] = True
    return chosen
