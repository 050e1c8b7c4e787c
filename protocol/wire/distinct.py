"""Find repeated numbers quickly."""

import numpy as np

from confide.protocol.wire.columns import Array

# Up to this many numbers are sorted without any other step first.
FEW = 512


def any_twice(numbers: Array) -> bool:
    """Return whether one of these 64-bit numbers occurs twice.

    Each number writes its index into the slot given by its first bits. Numbers that find another
    index in their slot are compared with that number, then sorted and compared with each other. Of
    hashes, at most one in eight is sorted; of other numbers, possibly all.
    """
    rest = numbers
    if len(numbers) > FEW:
        bits = len(numbers).bit_length() + 2
        places = (numbers >> np.uint64(64 - bits)).view(np.int64)
        order = np.arange(len(numbers), dtype=np.int32)
        # Slots that no number has written are never read.
        left = np.empty(1 << bits, dtype=np.int32)
        left[places] = order
        found = left.take(places)
        beaten = np.flatnonzero(found != order)
        rest = numbers[beaten]
        if (numbers[found[beaten]] == rest).any():
            return True
    ordered = np.sort(rest)
    return bool((ordered[1:] == ordered[:-1]).any())
