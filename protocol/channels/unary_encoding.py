"""Unary encoding: the report is one flag per label, each randomised independently."""

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from confide.protocol.channels.base import CHUNK, Array, Flags, PairLaw, SetChannel, close_enough
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import Entropy, in_chunks, words


@dataclass(frozen=True)
class UnaryEncoding(SetChannel):
    """Optimised unary encoding (Wang et al. 2017).

    The own flag is on with probability 1/2, every other with `noise / 2^bits`, about
    1/(e^epsilon + 1).
    """

    bits: int = field(init=False)
    noise: int = field(init=False)
    name = "unary"

    def _integers(self) -> dict[str, int]:
        bound = exp_below(self.epsilon)
        for bits in (16, 32, 64):
            noise = math.ceil((1 << bits) / (bound + 1))
            reached = log_up(Fraction((1 << bits) - noise, noise)) if 2 * noise < 1 << bits else 0.0
            if close_enough(reached, self.epsilon):
                break
        return {"bits": bits, "noise": noise}

    @property
    def hit(self) -> Fraction:
        return Fraction(1, 2)

    @property
    def spill(self) -> Fraction:
        return Fraction(self.noise, 1 << self.bits)

    def randomize(self, values: Array, entropy: Entropy) -> Flags:
        values = self.check_labels(values)
        out = np.empty((len(values), self.k), dtype=np.bool_)

        def work(part: slice) -> None:
            own = values[part]
            word = words(own.size * self.k, self.bits, entropy).reshape(own.size, self.k)
            flags = word < word.dtype.type(self.noise)
            at = np.arange(own.size)
            flags[at, own] = word[at, own] < word.dtype.type(1 << (self.bits - 1))
            out[part] = flags

        in_chunks(work, len(values), size=max(1, CHUNK // self.k), entropy=entropy)
        return out

    def law(self, value: int) -> dict[tuple[bool, ...], Fraction]:
        self.check_enumerable(1 << self.k)
        half = Fraction(1, 2)
        return {
            flags: half
            * math.prod(
                (
                    self.spill if on else 1 - self.spill
                    for label, on in enumerate(flags)
                    if label != value
                ),
                start=Fraction(1),
            )
            for flags in itertools.product((False, True), repeat=self.k)
        }

    def pair_law(self, value: int, rival: int) -> PairLaw:
        noise, quiet = self.spill / 2, (1 - self.spill) / 2
        return {
            (True, True): (noise, noise),
            (True, False): (quiet, noise),
            (False, True): (noise, quiet),
            (False, False): (quiet, quiet),
        }

    def support_range(self, set_size: int) -> tuple[int, int]:
        return 0, set_size

    def variance(self, set_size: float) -> float:
        """The sum of the variances of independent flags."""
        flags = Fraction(1, 4) + Fraction(set_size - 1) * self.spill * (1 - self.spill)
        return float(flags / (self.hit - self.spill) ** 2)
