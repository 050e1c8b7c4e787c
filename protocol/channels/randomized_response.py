"""k-ary randomised response: the report is a label, most often the record's own."""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from confide.protocol.channels.base import (
    CHUNK,
    Array,
    Flags,
    LabelChannel,
    PairLaw,
    two_levels,
)
from confide.protocol.exact.sampling import Entropy, in_chunks, words_below
from confide.protocol.wire.columns import U2, check_numbers, column


@dataclass(frozen=True)
class KaryRR(LabelChannel):
    """The own label with weight `high`, every other with weight `low`."""

    bits: int = field(init=False)
    low: int = field(init=False)
    high: int = field(init=False)
    name = "k-rr"
    uniform_noise = True

    def _integers(self) -> dict[str, int]:
        return two_levels(self.k, self.epsilon)

    @property
    def hit(self) -> Fraction:
        return Fraction(self.high, self.high + (self.k - 1) * self.low)

    @property
    def spill(self) -> Fraction:
        return Fraction(self.low, self.high + (self.k - 1) * self.low)

    def randomize(self, values: Array, entropy: Entropy) -> Array:
        """Draw one label for each label (the smallest unsigned type that holds 2k).

        The word divided by `low` counts the other labels after the own one; the remaining words
        (weight `high`) wrap around to the own label. This uses only vectorised integer arithmetic:
        a table would be slower.
        """
        values = self.check_labels(values)
        k, total = self.k, self.high + (self.k - 1) * self.low
        dtype = np.dtype(np.uint8 if k <= 1 << 7 else np.uint16)
        out = np.empty(values.shape, dtype=dtype)

        def work(part: slice) -> None:
            word = words_below(total, part.stop - part.start, entropy, bits=self.bits)
            step = word // word.dtype.type(self.low)
            # Two arrays, because the minimum with a scalar is several times slower.
            step = np.minimum(step, np.full_like(step, k - 1)).astype(dtype)
            step += values[part].astype(dtype, copy=False)
            step += dtype.type(1)
            np.minimum(step, step - dtype.type(k), out=out[part])

        in_chunks(work, len(values), size=CHUNK, entropy=entropy)
        return out

    @property
    def report_bits(self) -> int:
        return 16

    def pack(self, reports: Array) -> bytes:
        return reports.astype(U2).tobytes()

    def check(self, data: bytes, n: int) -> None:
        check_numbers(data, n, below=self.k)

    def unpack(self, data: bytes, n: int) -> Array:
        return column(data, U2, n)

    def supports(self, reports: Array) -> Flags:
        return np.equal.outer(self.check_labels(reports), np.arange(self.k))

    def supported(self, reports: Array, scores: Array) -> Array:
        return np.asarray(scores[np.arange(len(reports)), self.check_labels(reports)])

    def law(self, value: int) -> dict[int, Fraction]:
        return {report: self.hit if report == value else self.spill for report in range(self.k)}

    def pair_law(self, value: int, rival: int) -> PairLaw:
        law = {(True, False): (self.hit, self.spill), (False, True): (self.spill, self.hit)}
        if self.k > 2:
            rest = (self.k - 2) * self.spill
            law[False, False] = (rest, rest)
        return law

    def support_range(self, set_size: int) -> tuple[int, int]:
        return int(set_size == self.k), int(set_size > 0)

    def variance(self, set_size: float) -> float:
        inside = self.hit + Fraction(set_size - 1) * self.spill
        return float(inside * (1 - inside) / (self.hit - self.spill) ** 2)
