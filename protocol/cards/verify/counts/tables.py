"""Integer tables of the exponential mechanisms, made a second time from their definition."""

import math
from collections.abc import Iterator
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

# The largest integer weight of the exponential mechanisms.
WEIGHT = 1 << 40
# The share of epsilon on the bins below the target of rank-exponential.
LOWER_SHARE = 0.75
MOST_ENTRIES = 1 << 22


class Endless(Exception):
    """Raised if a table is too long for the mechanism to be made."""


def power(exponent: float) -> Fraction:
    """Return e^exponent to sixty digits, rounded down."""
    with localcontext() as context:
        context.prec = 70
        exact = Decimal(exponent).exp()
        context.prec, context.rounding = 60, ROUND_FLOOR
        return Fraction(+exact)


def descent(start: int, ratio: Fraction, least: int) -> Iterator[int]:
    """Divide start by the ratio repeatedly, rounding up, while it falls and is above `least`."""
    if math.log(start / least) > MOST_ENTRIES * math.log(ratio):
        raise Endless
    value, down, up = start, ratio.denominator, ratio.numerator
    while True:
        yield value
        lower = -(-value * down // up)
        if value <= least or lower == value:
            return
        value = lower


def both_sides(epsilon: float) -> tuple[Fraction, Fraction]:
    """The factors by which the weights of rank-exponential fall, below and above its target."""
    low = power(LOWER_SHARE * epsilon)
    return low, power(epsilon) / low
