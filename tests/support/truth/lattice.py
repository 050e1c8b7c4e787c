"""Exact lengths of integer vectors, for tests of sensitivity."""

import math
from typing import Any

from numpy.typing import NDArray


def length(sums: NDArray[Any]) -> int:
    """The L2 norm of integers, rounded up, in Python's arithmetic."""
    square = sum(int(value) ** 2 for value in sums.tolist())
    return math.isqrt(square - 1) + 1 if square else 0
