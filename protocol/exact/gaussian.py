"""Exact discrete Gaussian noise in bulk.

Floating point proposes, and decides where it provably can; rational numbers decide the rest.

**The law.** With t = 2^j near sigma, one proposal takes three independent uniform values: a sign, u
in {0, ..., t - 1} and a real W in (0, 1). Let v = floor(-ln W), so that P(v) = e^-v - e^-(v+1) = (1
- 1/e) e^-v, and

    x = u + t v,    g = x^2/(2 variance) - v + variance/(2 t^2)  >=  (t v/sigma - sigma/t)^2 / 2  >=
    0.

Given v, W is uniform between e^-(v+1) and e^-v, so W itself accepts with probability e^-g when

    W < e^-(v+1) + (e^-v - e^-(v+1)) e^-g.
    (*)

A magnitude x comes from one pair (u, v) alone, and is proposed and accepted with probability (1 -
1/e)/t e^-v e^-g = constant * exp(-x^2/(2 variance)). Its sign is fair, and -0 is rejected so that 0
counts once: what is accepted has P(x) proportional to exp(-x^2/(2 variance)), exactly. This is the
rejection from the discrete Laplace of Canonne, Kamath and Steinke (2020, Algorithm 3) with its
three steps of rejection made one. About 0.41 to 0.48 of proposals are accepted.

**Floating point.** W is known by its first 64 bits. Where W is farther than _UNSURE from e^-v, from
e^-(v+1) and from the right side of (*), all as computed in float64, the comparisons come out as
those of the real numbers. The float64 of W is within 2^-53 + 2^-64, and the powers of e within
2^-53 relatively. x < 2^53 is exact and 1/(2 variance) correctly rounded, so g is within 6 (g + v +
1) 2^-53: x^2/(2 variance) <= g + v, so no more than that cancels. numpy's exp is within 8 units in
the last place (tested; 2^-42 relatively would do). As (g + v + 1) e^-(g + v) <= 1, the two sides of
(*) are within 2^-48 together. numpy's logarithm only guesses v: a wrong guess lies on the wrong
side of e^-v or e^-(v+1), which counts as unsure.

**Everything else** (a proposal in about 2^33, among them every W below 2^-40) is decided by
`_decide`: enclosures in rational arithmetic, and further bits of the same W until they are on one
side. No direction of rounding decides anything, so the same entropy gives the same draws on every
machine.
"""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy, Integers, words

MOST_VARIANCE = 1 << 84

_UNSURE = 2.0**-40
# e^-_DEEPEST < _UNSURE: a W beyond is never sure.
_DEEPEST = 28
_POWERS = np.array([float(Context(prec=40).exp(Decimal(-k))) for k in range(_DEEPEST + 1)])
# Beyond this 1/(2 variance) every magnitude but 0 has e^-g < 2^-1000, in float64 and in truth.
_STEEPEST = 1 << 10
# Proposals at a time: their arrays stay in a processor's cache.
_CHUNK = 1 << 14


@dataclass(frozen=True)
class _Proposals:
    """The numbers of one variance.

    t = 2^j is the power of two with variance/2 < t^2 <= 2 variance, or 1.
    """

    variance: Fraction
    j: int
    steepness: float
    constant: float

    @classmethod
    def of(cls, variance: Fraction) -> "_Proposals":
        j = max(int(2 * variance).bit_length() - 1, 0) // 2
        return cls(
            variance,
            j,
            float(min(1 / (2 * variance), Fraction(_STEEPEST))),
            float(variance / (2 << 2 * j)),
        )

    def exponent(self, magnitude: int, v: int) -> Fraction:
        """g, exactly."""
        return magnitude**2 / (2 * self.variance) - v + self.variance / (2 << 2 * self.j)


def discrete_gaussian(variance: Fraction, count: int, entropy: Entropy) -> Integers:
    """`count` exact draws with P(x) proportional to exp(-x^2 / (2 variance)) on the integers.

    On integers of L2 sensitivity D the law is D^2/(2 variance)-zCDP (Canonne, Kamath, Steinke 2020,
    Theorem 14).
    """
    if not 0 < variance <= MOST_VARIANCE:
        raise BadInput(
            f"discrete Gaussian variance is {variance}; it must be above 0 and at most 2^84"
        )
    proposals = _Proposals.of(Fraction(variance))
    drawn, have = np.empty(count, dtype=np.int64), 0
    while have < count:
        # The first accepted ones in a row of independent proposals, however many are made at a
        # time.
        kept = _accepted(proposals, min(_CHUNK, (count - have) * 9 // 4 + 32), entropy)[
            : count - have
        ]
        drawn[have : have + kept.size] = kept
        have += kept.size
    return drawn


def _accepted(proposals: _Proposals, tried: int, entropy: Entropy) -> Integers:
    """The accepted ones of `tried` proposals, in order.

    Each proposal takes a word for sign and u, and one for W.
    """
    drawn = words(2 * tried, 64, entropy)
    first, second = drawn[:tried].view(np.int64), drawn[tried:]
    magnitude, kept, unsure = _compare(proposals, first & ((1 << proposals.j) - 1), second)
    for i in unsure.tolist():
        low = int(first[i]) & ((1 << proposals.j) - 1)
        exact = _decide(proposals, int(second[i]), entropy, low=low)
        kept[i] = exact is not None
        magnitude[i] = exact or 0
    sign = first >> 63
    kept &= (magnitude != 0) | (sign == 0)
    return ((magnitude ^ sign) - sign)[kept]


def _compare(
    proposals: _Proposals, low: Integers, word: NDArray[Any]
) -> tuple[Integers, NDArray[np.bool_], Integers]:
    """Magnitudes, whether they are accepted, and the places where float64 cannot tell."""
    w = word * 2.0**-64
    with np.errstate(divide="ignore"):
        v = np.minimum(-np.log(w), _DEEPEST - 1.0).astype(np.int64)
    above, below = _POWERS.take(v), _POWERS.take(v + 1)
    magnitude = low + (v << proposals.j)
    x = magnitude.astype(np.float64)
    g = x * x * proposals.steepness - v + proposals.constant
    room = below + (above - below) * np.exp(-g) - w
    distance = np.minimum(np.minimum(above - w, w - below), np.abs(room))
    return magnitude, room > 0, np.flatnonzero(distance < _UNSURE)


def _decide(proposals: _Proposals, word: int, entropy: Entropy, *, low: int) -> int | None:
    """The magnitude of one proposal if it is accepted, else None.

    W has the bits of `word`, and more bits are drawn as needed.
    """
    bits = 64
    while True:
        least, most, digits = (
            Fraction(word, 1 << bits),
            Fraction(word + 1, 1 << bits),
            20 + bits // 3,
        )
        guess = Context(prec=digits)
        v = int(guess.ln(guess.divide(Decimal(word + 1), Decimal(1 << bits))).copy_negate())
        below, above = _exp_minus(Fraction(v + 1), digits), _exp_minus(Fraction(v), digits)
        if below[1] <= least and most <= above[0]:
            magnitude = low + (v << proposals.j)
            chance = _exp_minus(proposals.exponent(magnitude, v), digits)
            # (*) grows with each of its three powers.
            limit = [b * (1 - c) + a * c for b, a, c in zip(below, above, chance, strict=True)]
            if most <= limit[0]:
                return magnitude
            if least >= limit[1]:
                return None
        for more in words(bits // 64, 64, entropy).tolist():
            word, bits = word << 64 | more, bits + 64


def _exp_minus(x: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Rational numbers below and above e^-x for x >= 0, in [0, 1].

    They are at most 10^(3 - digits) apart.

    `decimal` rounds `exp` correctly, so one unit in the last digit encloses the true value.
    """
    if x == 0:
        return Fraction(1), Fraction(1)
    if x > 3 * digits:
        return Fraction(0), Fraction(1, 10**digits)
    down, up = (
        Context(prec=digits, rounding=ROUND_FLOOR),
        Context(prec=digits, rounding=ROUND_CEILING),
    )
    # `copy_negate`, because a minus sign would round to the digits of the thread's context.
    most = down.exp(down.divide(Decimal(x.numerator), Decimal(x.denominator)).copy_negate())
    least = up.exp(up.divide(Decimal(x.numerator), Decimal(x.denominator)).copy_negate())
    return Fraction(down.next_minus(least)), min(Fraction(1), Fraction(up.next_plus(most)))
