"""The input of a classification score: the labels of a record ranked by probability.

For a label, a *ranking* gives its probability, the probability mass ranked strictly above it, and
its rank (ties broken by the label's index). There are two rankings, one of the true label alone (a
masked sum, no sorting) and one of every label (a sort). Both sum exactly: probabilities are first
rounded to a fixed grid (2^-40 for float64, 2^-23 for float32) on which floating-point addition of
numbers that total less than two has no rounding error, in any order. So a score is the same to the
bit with either ranking. Probabilities closer than the grid count as ties.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.probabilities import chunks, working

Array = NDArray[Any]

_GRID = {np.dtype(np.float32): np.float32(1.0), np.dtype(np.float64): np.float64(4096.0)}


class Ranking(Protocol):
    """The values that a score may read about labels; every array has the shape of the scores."""

    @property
    def labels(self) -> int:
        """Number of labels."""

    @property
    def own(self) -> Array:
        """Probability of the label."""

    @property
    def above(self) -> Array:
        """Total probability of the labels ranked strictly above it, exact on the grid."""

    @property
    def larger(self) -> Array:
        """Total probability of the labels with a larger one: `above` without the ties."""

    @property
    def rank(self) -> Array:
        """Number of labels ranked strictly above it."""

    @property
    def top(self) -> Array:
        """Largest probability of the record."""

    @property
    def u(self) -> Array:
        """The record's uniform number; only randomised scores have one."""


@dataclass(frozen=True)
class AnyRanking:
    """The part that all rankings share: probabilities, and uniform numbers if there are any."""

    probs: Array
    uniforms: Array | None

    @property
    def labels(self) -> int:
        return int(self.probs.shape[1])

    @property
    def u(self) -> Array:
        if self.uniforms is None:
            raise BadInput(
                "a randomised score needs u, one uniform number in [0, 1] a record; none was given"
            )
        return self.uniforms

    @cached_property
    def grid(self) -> Array:
        shift = _GRID[self.probs.dtype]
        rounded = self.probs + shift
        rounded -= shift
        return rounded


@dataclass(frozen=True)
class TrueRanking(AnyRanking):
    """The ranking of one label per record, computed in slices that fit the processor's cache."""

    truth: Array

    @cached_property
    def own(self) -> Array:
        return _pick(self.probs, self.truth).astype(working(self.probs.dtype), copy=False)

    @cached_property
    def above(self) -> Array:
        return self._sliced(_Slice.above)

    @cached_property
    def larger(self) -> Array:
        return self._sliced(_Slice.larger)

    @cached_property
    def rank(self) -> Array:
        return self._sliced(_Slice.rank)

    @cached_property
    def top(self) -> Array:
        return self.probs.max(axis=1).astype(working(self.probs.dtype), copy=False)

    def _sliced(self, question: Callable[["_Slice"], Array]) -> Array:
        out = np.empty(len(self.truth), dtype=working(self.probs.dtype))
        for rows in chunks(self.probs):
            out[rows] = question(
                _Slice(self.probs[rows].astype(out.dtype, copy=False), None, self.truth[rows])
            )
        return out


@dataclass(frozen=True)
class _Slice(AnyRanking):
    truth: Array

    @cached_property
    def _grid_own(self) -> Array:
        return _pick(self.grid, self.truth)

    @cached_property
    def _tied_before(self) -> Array:
        """Count the labels of lower index that tie with the true one.

        Ties are rare, so only rows with ties are counted.
        """
        tied = self.grid == self._grid_own[:, None]
        before = np.zeros(len(self.truth), dtype=self.probs.dtype)
        if np.count_nonzero(tied) > len(self.truth):
            rows = np.flatnonzero(_row_counts(tied, self.probs.dtype) > 1)
            before[rows] = np.sum(
                tied[rows] & (np.arange(self.labels) < self.truth[rows, None]), axis=1
            )
        return before

    @cached_property
    def _larger(self) -> Array:
        return self.grid > self._grid_own[:, None]

    def larger(self) -> Array:
        return np.einsum(
            "ij,ij->i",
            self.grid,
            self._larger.view(np.int8),
            dtype=self.probs.dtype,
            casting="unsafe",
        )

    def above(self) -> Array:
        return self.larger() + self._tied_before * self._grid_own

    def rank(self) -> Array:
        return _row_counts(self._larger, self.probs.dtype) + self._tied_before


def _pick(table: Array, columns: Array) -> Array:
    """Pick one entry per row; one flat index is faster than two indices."""
    if not table.flags.c_contiguous:
        return table[np.arange(len(columns)), columns]
    return table.reshape(-1).take(
        np.arange(0, table.size, table.shape[1]) + columns.astype(np.int64, copy=False)
    )


def _row_counts(flags: Array, dtype: np.dtype[Any]) -> Array:
    """Count the true flags of every row.

    A matrix-vector product counts faster than a sum of booleans, and as exactly.
    """
    return flags.astype(dtype) @ np.ones(flags.shape[1], dtype=dtype)
