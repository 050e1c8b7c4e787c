"""Randomised response on one bit, the channel of the method bits."""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from confide.protocol.channels.base import Array, Channel, Flags, Floats, PairLaw, two_levels
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy, words_below
from confide.protocol.wire.columns import check_flags, pack_flags, unpack_flags


@dataclass(frozen=True)
class Bit(Channel):
    """Randomised response on one bit (Warner 1965): true with weight `high`, flipped with `low`."""

    bits: int = field(init=False)
    low: int = field(init=False)
    high: int = field(init=False)
    name = "bit"

    def _integers(self) -> dict[str, int]:
        return two_levels(2, self.epsilon)

    @property
    def hit(self) -> Fraction:
        return Fraction(self.high, self.high + self.low)

    @property
    def spill(self) -> Fraction:
        return Fraction(self.low, self.high + self.low)

    def randomize(self, values: Array, entropy: Entropy) -> Flags:
        values = np.asarray(values)
        if values.ndim != 1 or not ((values == 0) | (values == 1)).all():
            raise BadInput(
                f"bits have shape {values.shape} and type {values.dtype}; accepted is one row of 0 "
                "and 1"
            )
        word = words_below(self.high + self.low, values.size, entropy, bits=self.bits)
        return values.astype(np.bool_) ^ (word < word.dtype.type(self.low))

    @property
    def report_bits(self) -> int:
        return 1

    def pack(self, reports: Array) -> bytes:
        return pack_flags(reports)

    def check(self, data: bytes, n: int) -> None:
        check_flags(data, n)

    def unpack(self, data: bytes, n: int) -> Flags:
        return unpack_flags(data, n)

    def weights(self, reports: Array) -> Floats:
        """Return unbiased estimates of the bits, one per report."""
        return self._unbiased(np.asarray(reports, dtype=np.bool_))

    def law(self, value: int) -> dict[int, Fraction]:
        return {report: self.hit if report == value else self.spill for report in (0, 1)}

    def pair_law(self, value: int, rival: int) -> PairLaw:
        return {(True, False): (self.hit, self.spill), (False, True): (self.spill, self.hit)}

    def deviation(self, rate: float) -> float:
        """The standard deviation of a report, in units of the share `rate` of true ones."""
        gain = float(self.hit - self.spill)
        seen = float(self.spill) + gain * rate
        return math.sqrt(seen * (1 - seen)) / gain

    def observed(self, rate: Fraction) -> Fraction:
        """Return the share of ones among reports if a share `rate` of the true bits is one."""
        return self.spill + (self.hit - self.spill) * rate
