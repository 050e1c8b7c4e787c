"""Check probabilities, labels and uniform numbers before they are scored."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.errors import BadInput

Array = NDArray[Any]

# The number of probabilities processed at once.
_CELLS = 1 << 17


def check_probabilities(probs: ArrayLike) -> Array:
    """Return the array if it holds probabilities, one row per record; else raise `BadInput`.

    The shape must be (n, K >= 2) and all values finite and non-negative, with rows that sum to 1
    within 1e-3.
    """
    probs = check_shape(probs)
    for rows in chunks(probs):
        part = probs[rows]
        totals = part.sum(axis=1, dtype=np.float64)
        wrong = ~(np.abs(totals - 1) <= 1e-3) | ~(part.min(axis=1) >= 0)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise BadInput(
                f"probabilities of record {rows.start + at} sum to {totals[at]:.6g} with least "
                f"{part[at].min():.6g}; accepted are rows without NaN, none below 0, that sum to 1 "
                "within 0.001"
            )
    return probs


def check_labels(labels: ArrayLike, *, n: int, k: int) -> Array:
    """Return the labels as an array if they are n integers from 0 to k - 1."""
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


def check_shape(probs: ArrayLike) -> Array:
    probs = np.asarray(probs)
    if probs.ndim != 2 or probs.shape[1] < 2 or probs.dtype.kind != "f":
        raise BadInput(
            f"probabilities have shape {probs.shape} and type {probs.dtype}; accepted are floats, "
            "one row a record and one column for each of at least 2 labels"
        )
    return probs


def check_uniforms(u: ArrayLike | None, n: int) -> Array | None:
    if u is None:
        return None
    u = np.asarray(u)
    if u.shape != (n,) or not ((u >= 0) & (u <= 1)).all():
        raise BadInput(f"u has shape {u.shape}; accepted are {n} numbers in [0, 1], one a record")
    return u


def working(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)


def chunks(probs: Array) -> Iterator[slice]:
    """Yield row slices that fit into the processor's cache."""
    rows = max(1, _CELLS // probs.shape[1])
    return (slice(start, start + rows) for start in range(0, len(probs), rows))


def tempered(probs: Array, temperature: float) -> Array:
    """Raise probabilities to 1/temperature and divide by their sum, each row by itself.

    The largest of a row is divided out first, so that the sum is at least 1.
    """
    if temperature == 1:
        return probs
    exact = probs.astype(np.float64)
    powers = (exact / exact.max(axis=1, keepdims=True)) ** (1 / temperature)
    return (powers / powers.sum(axis=1, keepdims=True)).astype(working(probs.dtype), copy=False)
