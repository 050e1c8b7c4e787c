"""The rankings of every label of a record, by a sort of integers."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.ranking import AnyRanking

Array = NDArray[Any]

# The bits of a probability below 2 as a multiple of the grid.
_BITS = {np.dtype(np.float32): 24, np.dtype(np.float64): 41}


@dataclass(frozen=True)
class _SortedRanking(AnyRanking):
    """The labels of every record in the order of their ranks.

    A sort key holds the probability in units of the grid, the larger the sooner, and below it the
    label's index. So keys are all different, and a sort of plain integers, which processors do
    several at once, orders labels and breaks ties. Units are added up as integers, which is exact
    too, and faster.
    """

    @property
    def _index_bits(self) -> int:
        return max(1, (self.labels - 1).bit_length())

    @cached_property
    def _keys(self) -> Array:
        places = _BITS[self.probs.dtype]
        kind = np.uint32 if places + self._index_bits <= 32 else np.uint64
        units = self.grid * self.probs.dtype.type(2 ** (places - 1))
        if not (units.min(initial=0) >= 0 and units.max(initial=0) < 2**places):
            raise BadInput(
                "probabilities hold numbers below 0, from 2 on or NaN; accepted are a model's"
            )
        keys = kind(2**places - 1) - units.astype(kind)
        keys <<= kind(self._index_bits)
        keys |= np.arange(self.labels, dtype=kind)
        return keys

    @cached_property
    def _sorted_keys(self) -> Array:
        return np.sort(self._keys, axis=1)

    @property
    def was_sorted(self) -> bool:
        """Whether a score has read anything that needs the order."""
        return "_sorted_keys" in self.__dict__

    @cached_property
    def _places(self) -> Array:
        """The place of every ranked label in the flat array of probabilities."""
        kind = self._sorted_keys.dtype.type
        order = (self._sorted_keys & kind(2**self._index_bits - 1)).astype(np.int64)
        order += np.arange(0, order.size, self.labels)[:, None]
        return order

    @cached_property
    def _ranked(self) -> Array:
        """The units of every ranked label."""
        kind = self._sorted_keys.dtype.type
        units = self._sorted_keys >> kind(self._index_bits)
        return np.subtract(kind(2 ** _BITS[self.probs.dtype] - 1), units, out=units)

    @cached_property
    def _ranked_above(self) -> Array:
        units = np.cumsum(self._ranked, axis=1, dtype=self._ranked.dtype)
        units -= self._ranked
        above = units.astype(self.probs.dtype)
        above *= self.probs.dtype.type(2.0 ** (1 - _BITS[self.probs.dtype]))
        return above

    @cached_property
    def _ranked_larger(self) -> Array:
        """Labels of equal probability share the mass above the first of them."""
        first = np.ones(self._ranked.shape, dtype=np.bool_)
        first[:, 1:] = self._ranked[:, 1:] != self._ranked[:, :-1]
        start = np.maximum.accumulate(np.where(first, np.arange(self.labels), 0), axis=1)
        return np.take_along_axis(self._ranked_above, start, axis=1)

    @cached_property
    def _ranks(self) -> Array:
        return np.broadcast_to(np.arange(self.labels, dtype=self.probs.dtype), self.probs.shape)

    @property
    def u(self) -> Array:
        return super().u[:, None]

    def unsorted(self, ranked: Array) -> Array:
        """Return values that are in the order of ranks in that of labels."""
        out = np.empty(ranked.shape, dtype=ranked.dtype)
        out.reshape(-1)[self._places] = ranked
        return out


@dataclass(frozen=True)
class FullRanking(_SortedRanking):
    """The ranking of every label of every record, in the order of labels."""

    @property
    def own(self) -> Array:
        return self.probs

    @cached_property
    def above(self) -> Array:
        return self.unsorted(self._ranked_above)

    @cached_property
    def larger(self) -> Array:
        return self.unsorted(self._ranked_larger)

    @cached_property
    def rank(self) -> Array:
        return self.unsorted(self._ranks)

    @cached_property
    def top(self) -> Array:
        return self.probs.max(axis=1, keepdims=True)


@dataclass(frozen=True)
class OrderedRanking(_SortedRanking):
    """The ranking of every label of every record, in the order of ranks."""

    @cached_property
    def own(self) -> Array:
        return self.probs.reshape(-1).take(self._places)

    @property
    def above(self) -> Array:
        return self._ranked_above

    @property
    def larger(self) -> Array:
        return self._ranked_larger

    @property
    def rank(self) -> Array:
        return self._ranks

    @cached_property
    def top(self) -> Array:
        return self.probs.max(axis=1, keepdims=True)

    def first(self, sizes: Array, *, out: Array) -> None:
        """Flag the first labels of every record, so many each, in the order of labels."""
        last = np.maximum(sizes - 1, 0)
        keys = self._sorted_keys.reshape(-1).take(np.arange(0, out.size, self.labels) + last)
        np.less_equal(self._keys, keys[:, None], out=out)
        out[sizes == 0] = False
