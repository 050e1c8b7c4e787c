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
from confide.protocol.wire.distinct import any_twice
from confide.protocol.wire.encoding import ID_BYTES

Array = NDArray[Any]

_FACTOR, _NOTHING, _LAST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0), np.uint64(2**64 - 1)
_FEWEST_PLACES, _BUCKET, _ONE = 1 << 12, 4, np.uint32(1)
# What is looked up at a time: more would not stay in the processor's cache.
_PIECE = 1 << 15


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
    if any_twice(names):
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
    """A set of ids: a table of buckets of four, 16 to 32 bytes a report, in which whole batches are
    looked up at once.

    Who finds its bucket full goes on to the next. At most half the places are taken, so almost all
    find theirs in the first, and that takes about as long as to fetch it from memory.
    """

    def __init__(self) -> None:
        self._table, self._count = np.zeros(_FEWEST_PLACES, dtype=np.uint64), 0
        # Nobody outside can aim many ids at one place.
        self._key = np.uint64(secrets.randbits(64) | 1)
        self._last: list[Array] = []

    def fresh(self, ids: bytes | Array) -> Array:
        """Which of these ids, 16 bytes each, are neither known nor stand earlier among these."""
        found = self.add(ids)
        self.take_back()
        return found

    def add(self, ids: bytes | Array) -> Array:
        """Know these ids from now on; which of them are fresh."""
        # An odd factor takes no two numbers to one, and none but 0 to 0.
        names = folded(ids) * self._key
        while 2 * (self._count + len(names)) > len(self._table):
            self._grow()
        fresh = np.zeros(len(names), dtype=np.bool_)
        self._last = self._put(names, fresh)
        self._count += sum(len(places) for places in self._last)
        return fresh

    def take_back(self) -> None:
        """Forget what was added last."""
        for places in self._last:
            self._table[places] = _NOTHING
            self._count -= len(places)
        self._last = []

    def _grow(self) -> None:
        """Twice as many buckets: each becomes two, and those that are not in their own are put
        there again."""
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
        """The first bits of a name are the number of its bucket."""
        return np.uint64(64 - (len(self._table) // _BUCKET - 1).bit_length())

    def _put(self, names: Array, fresh: Array) -> list[Array]:
        """Put those names into the table that are not in it, mark them as fresh, and say where they
        are."""
        left, step, taken = np.arange(len(names)), 0, list[Array]()
        while len(left):
            # Equal names find the same buckets full, so that they stay in their order.
            over = [
                self._enter(names, left[some], step, fresh, taken) for some in _pieces(len(left))
            ]
            left = np.concatenate(over)
            step += 1
        return taken

    def _enter(
        self, names: Array, left: Array, step: int, fresh: Array, taken: list[Array]
    ) -> Array:
        """Those of the names at `left` whose bucket, or the one so many steps on, is full; the
        others are in the table."""
        table, over, names = self._table, list[Array](), names[left]
        buckets = ((names >> self._shift).view(np.int64) + step) & (len(table) // _BUCKET - 1)
        while len(left):
            rows = table.reshape(-1, _BUCKET).take(buckets, axis=0, mode="clip").ravel()
            # Four flags, of one byte each, are looked at as one number, whose lowest is the first.
            known = (rows == names.repeat(_BUCKET)).view(np.uint32) != 0
            empty = (rows == _NOTHING).view(np.uint32)
            full = empty == 0
            place = buckets * _BUCKET + (np.bitwise_count((empty & -empty) - _ONE) >> 3)
            mine = np.flatnonzero(~(known | full))
            wanted = place[mine]
            # Of those that want the same place the first has it, whose index is written there last.
            # The others look again.
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
