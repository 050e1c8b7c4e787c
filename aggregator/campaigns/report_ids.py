"""The ids of a campaign's reports; each id counts once.

An id counts once in a campaign, whoever sends it and in whichever batch or round it comes. Answers
over Flower and answers over gRPC are checked by this same code.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.methods.base import Batch
from confide.protocol.wire.distinct import any_twice
from confide.protocol.wire.encoding import ID_BYTES

Array = NDArray[Any]

_FACTOR, _NOTHING, _LAST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0), np.uint64(2**64 - 1)
_FEWEST_PLACES, _BUCKET, _ONE = 1 << 12, 4, np.uint32(1)
# How many ids are looked up at a time: more would not stay in the processor's cache.
_PIECE = 1 << 15


def folded(ids: bytes | Array) -> Array:
    """Map each id of 16 bytes to a number of 64 bits above 0.

    Ids are hashes: among n of them any two map to the same number with probability below n^2 /
    2^65, 3e-6 for ten million. A sender that makes up ids that collide loses reports of its own.
    """
    flat = ids if isinstance(ids, np.ndarray) else np.frombuffer(ids, dtype=np.uint8)
    pairs = np.ascontiguousarray(flat.reshape(-1, ID_BYTES)).view(np.uint64)
    names: Array = pairs[:, 0] + pairs[:, 1] * _FACTOR
    names[names == _NOTHING] = _LAST
    return names


def again(names: Array) -> Array:
    """Which of these numbers occur earlier in the array."""
    repeated = np.zeros(len(names), dtype=np.bool_)
    if any_twice(names):
        # The sort is stable, so the first of equal numbers stays first.
        order = np.argsort(names, kind="stable")
        repeated[order[1:]] = names[order[1:]] == names[order[:-1]]
    return repeated


def counted_once(batches: Sequence[Batch], earlier: Sequence[Array]) -> list[Batch]:
    """Remove the ids that occur in `earlier` or in a previous batch, so that each counts once."""
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
    """A set of ids, as a hash table in which whole batches are looked up at once.

    The table has buckets of four and takes 16 to 32 bytes per report. An id whose bucket is full
    goes to the next bucket. At most half of the places are taken, so almost all ids are in their
    first bucket, and a lookup takes about as long as fetching that bucket from memory.
    """

    def __init__(self) -> None:
        self._table, self._count = np.zeros(_FEWEST_PLACES, dtype=np.uint64), 0
        # A secret factor, so that nobody outside can aim many ids at one place.
        self._key = np.uint64(secrets.randbits(64) | 1)
        self._last: list[Array] = []

    def fresh(self, ids: bytes | Array) -> Array:
        """Which of these ids, 16 bytes each, are neither known nor earlier in the array."""
        found = self.add(ids)
        self.take_back()
        return found

    def add(self, ids: bytes | Array) -> Array:
        """Add these ids, and return which of them are new."""
        # An odd factor maps no two numbers to the same one, and only 0 to 0.
        names = folded(ids) * self._key
        while 2 * (self._count + len(names)) > len(self._table):
            self._grow()
        fresh = np.zeros(len(names), dtype=np.bool_)
        self._last = self._put(names, fresh)
        self._count += sum(len(places) for places in self._last)
        return fresh

    def take_back(self) -> None:
        """Remove the ids that the last call of `add` added."""
        for places in self._last:
            self._table[places] = _NOTHING
            self._count -= len(places)
        self._last = []

    def _grow(self) -> None:
        """Double the number of buckets.

        Each bucket becomes two, and ids that were not in their own bucket are inserted again.
        """
        before, self._table = self._table, np.zeros(2 * len(self._table), dtype=np.uint64)
        shift, strays = self._shift, list[Array]()
        for some in _pieces(len(before)):
            names = before[some].reshape(-1, _BUCKET)
            start = some.start // _BUCKET * 2
            first = np.arange(start, start + 2 * len(names), 2, dtype=np.uint64)
            side = (names >> shift) - first[:, None]
            both = self._table[2 * some.start : 2 * some.stop].reshape(-1, 2, _BUCKET)
            np.multiply(names, side == 0, out=both[:, 0])
            np.multiply(names, side == 1, out=both[:, 1])
            strays.append(names[(side > 1) & (names != _NOTHING)])
        there = np.concatenate(strays)
        self._put(there, np.zeros(len(there), dtype=np.bool_))

    @property
    def _shift(self) -> np.uint64:
        """The shift that leaves the first bits of a name, which are the number of its bucket."""
        return np.uint64(64 - (len(self._table) // _BUCKET - 1).bit_length())

    def _put(self, names: Array, fresh: Array) -> list[Array]:
        """Insert the names that are not in the table, mark them as fresh, return their places."""
        left, step, taken = np.arange(len(names)), 0, list[Array]()
        while len(left):
            # Equal names find the same buckets full, so they keep their order.
            over = [
                self._enter(names, left[some], step=step, fresh=fresh, taken=taken)
                for some in _pieces(len(left))
            ]
            left = np.concatenate(over)
            step += 1
        return taken

    def _enter(
        self, names: Array, left: Array, *, step: int, fresh: Array, taken: list[Array]
    ) -> Array:
        """Insert the names at `left` into the buckets `step` after their own; return the rest.

        The rest are the names whose bucket is full and does not hold them.
        """
        table, over, names = self._table, list[Array](), names[left]
        buckets = ((names >> self._shift).view(np.int64) + step) & (len(table) // _BUCKET - 1)
        while len(left):
            rows = table.reshape(-1, _BUCKET).take(buckets, axis=0, mode="clip").ravel()
            # Four flags of one byte are read as one number, whose lowest byte is the first flag.
            known = (rows == names.repeat(_BUCKET)).view(np.uint32) != 0
            empty = (rows == _NOTHING).view(np.uint32)
            full = empty == 0
            place = buckets * _BUCKET + (np.bitwise_count((empty & -empty) - _ONE) >> 3)
            mine = np.flatnonzero(~(known | full))
            wanted = place[mine]
            # Of several names for one place the first gets it, because its index is written last.
            # The others try again.
            table.put(wanted[::-1], mine[::-1], mode="clip")
            has = table.take(wanted, mode="clip") == mine.view(np.uint64)
            lost, mine, wanted = mine[~has], mine[has], wanted[has]
            table.put(wanted, names[mine], mode="clip")
            fresh[left[mine]] = True
            taken.append(wanted)
            over.append(left[full & ~known])
            left, names, buckets = left[lost], names[lost], buckets[lost]
        return np.concatenate(over)


def _pieces(count: int) -> list[slice]:
    return [slice(first, min(first + _PIECE, count)) for first in range(0, count, _PIECE)]
