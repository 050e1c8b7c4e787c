"""Discrete Laplace noise for counts that are only compared.

`N + Z >= level` is one bit, true with probability P(Z >= level - N). That probability is kept as an
integer over 2^64 and compared with a random word, so the bit has exactly the law the integers
spell, whatever noise they were made to resemble.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.quantiles.weights import falling, worst_ratio
from confide.protocol.exact.sampling import Entropy, Integers, bernoulli, words

BITS = 64
ONE = 1 << BITS
# The rarest event told apart: 2^-40, as in the tables of weights.
FLOOR = 1 << (BITS - 40)


@dataclass(frozen=True)
class LaplaceTail:
    """P(Z >= x) = tail[x - 1]/2^64 for x >= 1, and P(Z >= 1 - x) = 1 - P(Z >= x).

    Beyond the table it is constant.

    tail[0] is about 2^64/(1 + E) and tail falls by at most a factor E a step, E <= e^(1/scale).
    Then both the bit and its opposite change their probability by at most a factor E when x moves
    by 1: above 0 by making, below by symmetry, and the opposite of a rare bit moves by less (with p
    = 1/E, from x = 1 to 2 by 1 + p - p^2 <= 1/p). `worst` computes it.
    """

    ratio: Fraction

    @cached_property
    def tail(self) -> list[int]:
        """2^64 P(Z >= x) for x = 1, 2, ..."""
        first = -(-ONE * self.ratio.denominator // (self.ratio.numerator + self.ratio.denominator))
        return falling(first, self.ratio, floor=FLOOR)

    @cached_property
    def _numerators(self) -> list[int]:
        """2^64 P(Z >= x) for all x of the table, ascending."""
        return [*(ONE - p for p in reversed(self.tail)), *self.tail]

    @cached_property
    def worst(self) -> Fraction:
        """The largest factor in the probability of a bit when x moves by 1.

        By symmetry the opposite bit has the same.
        """
        return worst_ratio(self._numerators)

    @cached_property
    def _words(self) -> NDArray[Any]:
        return np.array(self._numerators, dtype=np.uint64)

    def numerators(self, x: Integers) -> NDArray[Any]:
        """2^64 P(Z >= x)."""
        reach = len(self.tail)
        return self._words[np.clip(x, 1 - reach, reach) + reach - 1]

    def probability(self, x: int) -> Fraction:
        return Fraction(int(self.numerators(np.array([x]))[0]), ONE)

    def exceeds(self, x: Integers, entropy: Entropy) -> NDArray[np.bool_]:
        """One independent bit `Z >= x` each."""
        return words(len(x), BITS, entropy) < self.numerators(x)


def two_sided_geometric(numerator: int, entropy: Entropy) -> int:
    """One exact draw with P(x) proportional to (numerator/2^64)^|x|.

    It is a run of successes with a sign; -0 is drawn again.
    """
    while True:
        run, block = 0, bernoulli(numerator, 64, entropy)
        while block.all():
            run, block = run + 64, bernoulli(numerator, 64, entropy)
        run += int(np.argmin(block))
        negative = bool(bernoulli(1 << (BITS - 1), 1, entropy)[0])
        if not (negative and run == 0):
            return -run if negative else run
