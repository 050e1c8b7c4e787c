"""Three ways to read what a model returns: probabilities, predicted numbers, inputs of a head.

Each makes every row valid by a function of that row alone. A result that is not valid, or a call
without a result, is no error: an error would tell the model's author, without noise, that some
record has a property of their choice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.scores.task import CLASSIFICATION, MULTI_LABEL, OWN_LOSS, REGRESSION

Array = NDArray[Any]

# Narrower than what `check_probabilities` accepts, by more than a sum can be off in any order.
TOLERANCE = 1e-3 - 1e-9


@dataclass(frozen=True)
class ResultKind:
    """How rows of results are read.

    `valid` makes rows valid, and `holds` tells whether all rows of a cache are. `empty` finds rows
    like those of records without a result, and `without` describes them. Caches of a kind end in
    `suffix`, and `tag` is part of their digests.
    """

    name: str
    suffix: str
    tag: bytes
    valid: Callable[[Array], Array]
    holds: Callable[[Array], bool]
    empty: Callable[[Array], Array]
    without: str


def valid_rows(found: Array) -> Array:
    """Keep rows that are probabilities, make others uniform: a function of each row alone."""
    with np.errstate(over="ignore", invalid="ignore"):
        totals = found.sum(axis=1, dtype=np.float64)
        # NaN compares false.
        valid = (np.abs(totals - 1) <= TOLERANCE) & (found.min(axis=1) >= 0)
    return found if valid.all() else np.where(valid[:, None], found, np.float32(1 / found.shape[1]))


def _are_probabilities(rows: Array) -> bool:
    """The test of `check_probabilities`, up to the rounding of single precision.

    Calling it would take most of the time of reading a cache.
    """
    totals = rows @ np.ones(rows.shape[1], dtype=np.float32)
    return bool(rows.min() >= 0 and totals.min() >= 1 - 1.01e-3 and totals.max() <= 1 + 1.01e-3)


def finite_rows(found: Array) -> Array:
    """Keep rows of finite numbers; any other is NaN throughout, whose score is 1."""
    whole = np.asarray(np.isfinite(found).all(axis=1))
    return found if whole.all() else np.where(whole[:, None], found, np.float32(np.nan))


def _are_finite_or_missing(rows: Array) -> bool:
    """Whether no number is infinite, and NaN fills whole rows."""
    missing = np.isnan(rows)
    whole = bool((missing.all(axis=1) == _are_missing(rows)).all())
    return whole and not bool(np.isinf(rows).any())


def _are_missing(rows: Array) -> Array:
    return np.asarray(np.isnan(rows).any(axis=1))


def clipped_rows(found: Array) -> Array:
    """Clip numbers to [0, 1]; one that is not finite is 0."""
    return np.clip(np.where(np.isfinite(found), found, np.float32(0)), 0, 1)


def _are_clipped(rows: Array) -> bool:
    return bool(rows.min() >= 0 and rows.max() <= 1)


PROBABILITIES = ResultKind(
    "probabilities",
    "scores",
    b"confide scores 1",
    valid_rows,
    _are_probabilities,
    lambda rows: (rows == rows[:, :1]).all(axis=1),
    "the same score for every label",
)
PREDICTIONS = ResultKind(
    "predictions",
    "predictions",
    b"confide predictions 1",
    finite_rows,
    _are_finite_or_missing,
    _are_missing,
    "no predicted number, and score 1",
)
NUMBERS = ResultKind(
    "numbers",
    "numbers",
    b"confide numbers 1",
    clipped_rows,
    _are_clipped,
    lambda rows: (rows == 0).all(axis=1),
    "no output of the model above 0",
)
RESULT_KINDS = {kind.name: kind for kind in (PROBABILITIES, PREDICTIONS, NUMBERS)}
# How the results of a model are read; losses come without any.
TASK_RESULTS = {
    CLASSIFICATION: PROBABILITIES,
    REGRESSION: PREDICTIONS,
    MULTI_LABEL: NUMBERS,
    OWN_LOSS: NUMBERS,
}
