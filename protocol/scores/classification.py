"""Conformity scores in [0, 1], lower conforming better.

A classification score is one elementwise function of a *ranking*: for a label, its probability, the
probability mass ranked strictly above it, and its rank (ties broken by the label's index). There
are two rankings, one of the true label alone (a masked sum, no sorting) and one of every label (a
sort). Both feed the same function, and both sum exactly: probabilities are first rounded to a fixed
grid (2^-40 for float64, 2^-23 for float32) on which floating-point addition of numbers that total
less than two has no rounding error, in whatever order. So `all_scores` and `true_scores` agree to
the bit. Probabilities closer than the grid count as ties.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.errors import BadInput

Array = NDArray[Any]

RAPS_PENALTY, RAPS_FREE_RANKS = 0.01, 5
SAPS_PENALTY = 0.1
_CELLS = 1 << 17
_GRID = {np.dtype(np.float32): np.float32(1.0), np.dtype(np.float64): np.float64(4096.0)}


class Ranking(Protocol):
    """What a score may ask about labels; every array has the shape of the scores."""

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
        """Total probability of the labels with a larger probability, exact on the grid: `above`
        without the ties."""

    @property
    def rank(self) -> Array:
        """Number of labels ranked strictly above it."""

    @property
    def top(self) -> Array:
        """Largest probability of the record."""

    @property
    def u(self) -> Array:
        """The record's uniform number; only randomised scores have one."""


Score = Callable[[Ranking], Array]


def hps(r: Ranking) -> Array:
    """1 - p_y (HPS of Vovk et al. 2005, LAC of Sadinle et al. 2019)."""
    return 1 - r.own


def aps(r: Ranking) -> Array:
    """Mass ranked at or above y (Romano et al. 2020, not randomised)."""
    return r.above + r.own


def aps_randomized(r: Ranking) -> Array:
    """Mass of larger probabilities plus u p_y (Romano et al. 2020); the own mass enters once, so
    the score stays within 1."""
    return r.larger + r.u * r.own


def raps(r: Ranking) -> Array:
    """APS plus a penalty for every rank beyond the free ones (Angelopoulos et al. 2021), divided by
    its largest value."""
    extra = np.maximum(r.rank + 1 - RAPS_FREE_RANKS, 0)
    return (r.above + r.own + RAPS_PENALTY * extra) / (
        1 + RAPS_PENALTY * max(r.labels - RAPS_FREE_RANKS, 0)
    )


def saps(r: Ranking) -> Array:
    """Largest probability plus a penalty a rank (Huang et al. 2024, u = 1), divided by its largest
    value."""
    return (r.top + SAPS_PENALTY * r.rank) / (1 + SAPS_PENALTY * (r.labels - 1))


def top_k(r: Ranking) -> Array:
    """Rank of y, from 1/K for the first to 1 for the last."""
    return (r.rank + 1) / r.labels


SCORES: dict[str, Score] = {
    "hps": hps,
    "aps": aps,
    "aps-randomized": aps_randomized,
    "raps": raps,
    "saps": saps,
    "top-k": top_k,
}


RANDOMIZED = frozenset({"aps-randomized"})


@dataclass(frozen=True)
class _AnyRanking:
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
class TrueRanking(_AnyRanking):
    """The ranking of one label a record; what takes every label into account goes in slices that
    stay in the cache."""

    truth: Array

    @cached_property
    def own(self) -> Array:
        return _pick(self.probs, self.truth).astype(_working(self.probs.dtype), copy=False)

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
        return self.probs.max(axis=1).astype(_working(self.probs.dtype), copy=False)

    def _sliced(self, question: Callable[["_Slice"], Array]) -> Array:
        out = np.empty(len(self.truth), dtype=_working(self.probs.dtype))
        for rows in _chunks(self.probs):
            out[rows] = question(
                _Slice(self.probs[rows].astype(out.dtype, copy=False), None, self.truth[rows])
            )
        return out


@dataclass(frozen=True)
class _Slice(_AnyRanking):
    truth: Array

    @cached_property
    def _grid_own(self) -> Array:
        return _pick(self.grid, self.truth)

    @cached_property
    def _tied_before(self) -> Array:
        """How many labels of lower index tie with the true one: almost always none, so only tied
        rows are looked at."""
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


@dataclass(frozen=True)
class FullRanking(_AnyRanking):
    """The ranking of every label of every record."""

    @property
    def own(self) -> Array:
        return self.probs

    @property
    def u(self) -> Array:
        return super().u[:, None]

    @cached_property
    def _order(self) -> Array:
        return np.argsort(-self.grid, axis=1, kind="stable")

    def _unsorted(self, ranked: Array) -> Array:
        out = np.empty_like(ranked)
        np.put_along_axis(out, self._order, ranked, axis=1)
        return out

    @cached_property
    def _ranked(self) -> Array:
        return np.take_along_axis(self.grid, self._order, axis=1)

    @cached_property
    def _ranked_above(self) -> Array:
        return np.cumsum(self._ranked, axis=1, dtype=self._ranked.dtype) - self._ranked

    @cached_property
    def above(self) -> Array:
        return self._unsorted(self._ranked_above)

    @cached_property
    def larger(self) -> Array:
        """What lies above the first of a run of equal probabilities lies above them all."""
        first = np.ones(self._ranked.shape, dtype=np.bool_)
        first[:, 1:] = self._ranked[:, 1:] != self._ranked[:, :-1]
        start = np.maximum.accumulate(np.where(first, np.arange(self.labels), 0), axis=1)
        return self._unsorted(np.take_along_axis(self._ranked_above, start, axis=1))

    @cached_property
    def rank(self) -> Array:
        places = np.arange(self.labels, dtype=self.probs.dtype)
        return self._unsorted(np.broadcast_to(places, self.probs.shape))

    @cached_property
    def top(self) -> Array:
        return self.probs.max(axis=1, keepdims=True)


def check_probabilities(probs: ArrayLike) -> Array:
    """The array itself when it is (n, K >= 2), finite, non-negative and every row sums to one
    within 1e-3."""
    probs = _check_shape(probs)
    for rows in _chunks(probs):
        part = probs[rows]
        totals = part.sum(axis=1, dtype=np.float64)
        wrong = ~(np.abs(totals - 1) <= 1e-3) | ~(part.min(axis=1) >= 0)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise BadInput(
                f"probabilities of record {rows.start + at} sum to {totals[at]:.6g} with least "
                f"{part[at].min():.6g}; "
                "accepted are rows without NaN, none below 0, that sum to 1 within 0.001"
            )
    return probs


def check_labels(labels: ArrayLike, *, n: int, k: int) -> Array:
    """The labels as an array when there are n of them, integers from 0 to k - 1."""
    labels = np.asarray(labels)
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise BadInput(
            f"labels have shape {labels.shape} and type {labels.dtype}; accepted are {n} integers, "
            "one a record"
        )
    if n and not (labels.min() >= 0 and labels.max() < k):
        raise BadInput(
            f"labels run from {labels.min()} to {labels.max()}; accepted are 0 to {k - 1}, a "
            "column each"
        )
    return labels


def true_scores(
    score: Score, probs: ArrayLike, labels: ArrayLike, *, u: ArrayLike | None = None
) -> Array:
    """(n,) scores of the given labels, without sorting; equal to the bit to those entries of
    `all_scores`."""
    probs = _check_shape(probs)
    labels = check_labels(labels, n=len(probs), k=probs.shape[1])
    uniforms = _check_uniforms(u, len(probs))
    return np.clip(score(TrueRanking(probs, uniforms, labels)), 0, 1).astype(
        _working(probs.dtype), copy=False
    )


def all_scores(score: Score, probs: ArrayLike, *, u: ArrayLike | None = None) -> Array:
    """(n, K) scores of every label."""
    probs = _check_shape(probs)
    uniforms = _check_uniforms(u, len(probs))
    out = np.empty(probs.shape, dtype=_working(probs.dtype))
    for rows in _chunks(probs):
        part = probs[rows].astype(out.dtype, copy=False)
        out[rows] = np.clip(
            score(FullRanking(part, None if uniforms is None else uniforms[rows])), 0, 1
        )
    return out


def _pick(table: Array, columns: Array) -> Array:
    """One entry a row; on one flat row that is faster than with two indices."""
    if not table.flags.c_contiguous:
        return table[np.arange(len(columns)), columns]
    return table.reshape(-1).take(
        np.arange(0, table.size, table.shape[1]) + columns.astype(np.int64, copy=False)
    )


def _row_counts(flags: Array, dtype: np.dtype[Any]) -> Array:
    """True flags a row; a matrix-vector product counts faster than a sum of booleans, and as
    exactly."""
    return flags.astype(dtype) @ np.ones(flags.shape[1], dtype=dtype)


def _working(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)


def _chunks(probs: Array) -> Iterator[slice]:
    """Row slices that stay in the cache."""
    rows = max(1, _CELLS // probs.shape[1])
    return (slice(start, start + rows) for start in range(0, len(probs), rows))


def _check_shape(probs: ArrayLike) -> Array:
    probs = np.asarray(probs)
    if probs.ndim != 2 or probs.shape[1] < 2 or probs.dtype.kind != "f":
        raise BadInput(
            f"probabilities have shape {probs.shape} and type {probs.dtype}; accepted are floats, "
            "one row a record and one "
            "column for each of at least 2 labels"
        )
    return probs


def _check_uniforms(u: ArrayLike | None, n: int) -> Array | None:
    if u is None:
        return None
    u = np.asarray(u)
    if u.shape != (n,) or not ((u >= 0) & (u <= 1)).all():
        raise BadInput(f"u has shape {u.shape}; accepted are {n} numbers in [0, 1], one a record")
    return u
