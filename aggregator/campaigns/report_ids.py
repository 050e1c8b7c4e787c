"""The ids of a campaign's reports. An id counts once in a campaign, whoever sends it and in
whichever batch or round it comes.

Every path asks this same question: what comes over Flower, and what comes over gRPC.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.methods.base import Batch
from confide.protocol.wire.encoding import ID_BYTES

Array = NDArray[Any]

_FACTOR, _NOTHING, _LAST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0), np.uint64(2**64 - 1)
_FEWEST_SLOTS = 1 << 12


def folded(ids: bytes | Array) -> Array:
    """A number above 0 of 64 bits for each id of 16 bytes.

    Ids are hashes: of n of them any two agree in this with probability below n^2 / 2^65, 3e-6 for
    ten million. Who makes up ids that agree loses reports of its own.
    """
    flat = ids if isinstance(ids, np.ndarray) else np.frombuffer(ids, dtype=np.uint8)
    pairs = np.ascontiguousarray(flat.reshape(-1, ID_BYTES)).view(np.uint64)
    names: Array = pairs[:, 0] + pairs[:, 1] * _FACTOR
    names[names == _NOTHING] = _LAST
    return names


def again(names: Array) -> Array:
    """Which of these numbers stand earlier among them."""
    repeated = np.zeros(len(names), dtype=np.bool_)
    ordered = np.sort(names)
    if (ordered[1:] == ordered[:-1]).any():
        # Sorting is stable: of equal ones the first stands first.
        order = np.argsort(names, kind="stable")
        repeated[order[1:]] = names[order[1:]] == names[order[:-1]]
    return repeated


def counted_once(batches: Sequence[Batch], earlier: Sequence[Array]) -> list[Batch]:
    """The batches without the ids that are among the earlier ones or in a batch before: an id
    counts once in a campaign."""
    if not batches:
        return []
    known = sum(len(ids) for ids in earlier)
    repeated = again(folded(np.concatenate([*earlier, *(batch.ids for batch in batches)])))
    edges = known + np.cumsum([0, *(len(batch) for batch in batches)])
    return [
        batch.only(np.flatnonzero(~repeated[start:stop])) if repeated[start:stop].any() else batch
        for batch, start, stop in zip(batches, edges[:-1], edges[1:], strict=True)
    ]


class ReportIds:
    """A set of ids: a table with open addressing, 16 to 32 bytes a report, of which whole batches
    are looked up at once."""

    def __init__(self) -> None:
        self._table, self._count = np.zeros(_FEWEST_SLOTS, dtype=np.uint64), 0
        # Nobody outside can aim many ids at one place.
        self._key = np.uint64(secrets.randbits(64) | 1)

    def fresh(self, ids: bytes | Array) -> Array:
        """Which of these ids, 16 bytes each, are neither known nor stand earlier among these."""
        names = folded(ids)
        return ~(again(names) | self._known(names))

    def add(self, ids: bytes | Array) -> None:
        """Know these ids from now on."""
        names = folded(ids)
        self._count += len(names)
        if 2 * self._count > len(self._table):
            before = self._table[self._table != _NOTHING]
            self._table = np.zeros(1 << (2 * self._count - 1).bit_length(), dtype=np.uint64)
            self._put(before)
        self._put(names)

    def _places(self, names: Array) -> Array:
        bits = len(self._table).bit_length() - 1
        return ((names * self._key) >> np.uint64(64 - bits)).astype(np.int64)

    def _known(self, names: Array) -> Array:
        places = self._places(names)
        found = self._table.take(places, mode="clip")
        known: Array = found == names
        # Most find an empty place at once; the others go on to the next one.
        rest = np.flatnonzero((found != _NOTHING) & ~known)
        places = places[rest]
        while len(rest):
            places = (places + 1) & (len(self._table) - 1)
            found = self._table.take(places, mode="clip")
            equal = found == names[rest]
            known[rest[equal]] = True
            further = (found != _NOTHING) & ~equal
            rest, places = rest[further], places[further]
        return known

    def _put(self, names: Array) -> None:
        places = self._places(names)
        while len(names):
            free = self._table.take(places, mode="clip") == _NOTHING
            self._table[places[free]] = names[free]
            # Of those that wanted the same place one has it; the others go on.
            further = self._table.take(places, mode="clip") != names
            names, places = names[further], (places[further] + 1) & (len(self._table) - 1)
