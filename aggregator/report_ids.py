"""The ids of a campaign's reports. An id counts once in a campaign, whoever sends it and in whichever batch or round it comes.

Every path asks this same question: what comes over Flower, and what comes over gRPC.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.messages import ID_BYTES

Array = NDArray[Any]
Run = tuple[Array, Array]


class ReportIds:
    """Ids as pairs of numbers in sorted runs, each at least twice as long as the next: 16 bytes of memory a report."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def fresh(self, ids: bytes | Array) -> Array:
        """Which of these ids, 16 bytes each, are neither known nor stand earlier among these."""
        names = _pairs(ids)
        order = _order(*names.T)
        high, low = names[order].T
        known = np.zeros(len(names), dtype=np.bool_)
        # Sorting is stable: of equal ids the first stands first.
        known[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        for run in self._runs:
            known |= _within(run, high, low)
        fresh = np.empty(len(names), dtype=np.bool_)
        fresh[order] = ~known
        return fresh

    def add(self, ids: bytes | Array) -> None:
        """Know these ids from now on."""
        names = _pairs(ids)
        if not len(names):
            return
        self._runs.append(_run(*names.T))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(_run(np.concatenate([before[0], last[0]]), np.concatenate([before[1], last[1]])))


def _pairs(ids: bytes | Array) -> Array:
    flat = np.frombuffer(ids, dtype=np.uint8) if not isinstance(ids, np.ndarray) else ids
    return np.ascontiguousarray(flat.reshape(-1, ID_BYTES)).view(np.uint64)


def _order(high: Array, low: Array) -> Array:
    """Sorted by both numbers; by one alone where that tells all apart, as it does with hashes."""
    order = np.argsort(high, kind="stable")
    ordered = high[order]
    return np.lexsort((low, high)) if (ordered[1:] == ordered[:-1]).any() else order


def _run(high: Array, low: Array) -> Run:
    order = _order(high, low)
    return high[order], low[order]


def _within(run: Run, high: Array, low: Array) -> Array:
    """Which of the pairs, sorted by `high`, are in the run: a bisection of all of them at once."""
    left = np.searchsorted(run[0], high)
    found = run[0][np.minimum(left, len(run[0]) - 1)] == high
    if not found.any():
        return found
    places = np.flatnonzero(found)
    left, right, wanted = left[places], np.searchsorted(run[0], high[places], side="right"), low[places]
    ends = right
    while (open_ := left < right).any():
        middle = (left + right) // 2
        below = run[1][np.minimum(middle, len(run[1]) - 1)] < wanted
        left, right = np.where(open_ & below, middle + 1, left), np.where(open_ & ~below, middle, right)
    found[places] = (left < ends) & (run[1][np.minimum(left, len(run[1]) - 1)] == wanted)
    return found
