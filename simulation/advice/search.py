"""The fewest records, and the least epsilon, with which sets have a wanted mean size."""

import math
from collections.abc import Callable

# Maps a number of records and an epsilon to the expected size, which both let fall.
Size = Callable[[int, float], float]

LEAST_EPSILON, MOST_EPSILON = 0.02, 10.0
FEWEST, MOST = 20, 10**8
# Halvings of the logarithm; between the last two ends sizes are interpolated.
_HALVINGS = 6


def least_epsilon(size: Size, n: int, *, wanted: float) -> float | None:
    """The least epsilon for the size, rounded up to two digits; None without one."""
    found = _least(lambda x: size(n, x), LEAST_EPSILON, MOST_EPSILON, wanted=wanted)
    return None if found is None else min(MOST_EPSILON, rounded_up(found))


def records_needed(size: Size, epsilon: float, *, wanted: float) -> int | None:
    """The fewest records for the size, rounded up to two digits; None without any."""
    found = _least(lambda x: size(round(x), epsilon), FEWEST, MOST, wanted=wanted)
    return None if found is None else math.ceil(rounded_up(found))


def _least(
    size: Callable[[float], float], low: float, high: float, *, wanted: float
) -> float | None:
    """The least x with a size of at most `wanted`; sizes fall with x."""
    at_low, at_high = size(low), size(high)
    if at_high > wanted:
        return None
    if at_low <= wanted:
        return low
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        found = size(middle)
        if found <= wanted:
            high, at_high = middle, found
        else:
            low, at_low = middle, found
    share = (at_low - wanted) / (at_low - at_high)
    return low * (high / low) ** share


def rounded_up(value: float) -> float:
    """The value with two digits, rounded up."""
    unit = float(10.0 ** (math.floor(math.log10(value)) - 1))
    return round(math.ceil(value / unit - 1e-9) * unit, 10)
