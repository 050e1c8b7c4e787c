"""Whether numbers that should differ do."""

import numpy as np

from confide.protocol.wire.columns import Array

# So few are sorted before anything else is done.
FEW = 512


def any_twice(numbers: Array) -> bool:
    """Whether one of these numbers of 64 bits stands twice.

    Each leaves its index at the place that its first bits name; those that find another's there are
    compared with that one, and sorted to be compared with each other. Of hashes these are one in
    eight at most; of any other numbers they may be all.
    """
    rest = numbers
    if len(numbers) > FEW:
        bits = len(numbers).bit_length() + 2
        places = (numbers >> np.uint64(64 - bits)).view(np.int64)
        order = np.arange(len(numbers), dtype=np.int32)
        # What was there before is never read.
        left = np.empty(1 << bits, dtype=np.int32)
        left[places] = order
        found = left.take(places)
        beaten = np.flatnonzero(found != order)
        rest = numbers[beaten]
        if (numbers[found[beaten]] == rest).any():
            return True
    ordered = np.sort(rest)
    return bool((ordered[1:] == ordered[:-1]).any())
