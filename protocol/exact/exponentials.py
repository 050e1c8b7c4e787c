"""Exponentials and logarithms in rational arithmetic; names tell the side of the rounding.

`decimal` rounds `exp` and `ln` correctly, so one unit in the last digit encloses the true value.
Logarithms carry more digits than exponentials, so that log(exp_below(x)) is seen to be at most x.
Values are kept, because every message of a campaign makes its channel again.
"""

import math
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

_DIGITS = Context(prec=60)
_MORE_DIGITS = Context(prec=90)


@lru_cache(maxsize=1024)
def exp_below(x: float) -> Fraction:
    """A rational number at most e^x, and within 1e-58 of it relatively."""
    return Fraction(_DIGITS.next_minus(_DIGITS.exp(Decimal(x))))


@lru_cache(maxsize=1024)
def log_up(ratio: Fraction) -> float:
    """The smallest float at or above log(ratio), ratio >= 1."""
    quotient = _MORE_DIGITS.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    if Fraction(quotient) < ratio:
        quotient = _MORE_DIGITS.next_plus(quotient)
    if quotient == 1:
        return 0.0
    return float_up(Fraction(_MORE_DIGITS.next_plus(_MORE_DIGITS.ln(quotient))))


def float_up(exact: Fraction) -> float:
    """The smallest float at or above a rational number."""
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
