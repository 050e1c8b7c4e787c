"""Regression scores in [0, 1], and the intervals of a threshold.

The bound of a score is public and never taken from the data.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.errors import BadInput

Array = NDArray[Any]

ABSOLUTE_RESIDUAL = "absolute-residual"


def _check_bound(bound: float) -> None:
    if not (math.isfinite(bound) and bound > 0):
        raise BadInput(f"the public bound is {bound!r}; it must be a finite number above 0")


def _numbers(what: str, values: ArrayLike) -> NDArray[np.float64]:
    """Convert to float64, because differences of small integer types would wrap around."""
    found = np.asarray(values)
    if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise BadInput(
            f"{what} hold values that are no finite numbers, such as nan; accepted are finite "
            "numbers"
        )
    return found.astype(np.float64)


def column(what: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return one number per record, from (n,) or (n, 1).

    A column of a table, (n, 1), would broadcast against n targets to n x n numbers.
    """
    found = _numbers(what, values)
    if found.ndim == 2 and found.shape[1] == 1:
        return found[:, 0]
    if found.ndim != 1:
        raise BadInput(f"{what} have shape {found.shape}; accepted are (n,) and (n, 1)")
    return found


def _quantiles(values: ArrayLike) -> NDArray[np.float64]:
    found = _numbers("predictions", values)
    if found.ndim != 2 or found.shape[1] != 2:
        raise BadInput(
            f"predictions have shape {found.shape}; CQR takes two columns, lower and upper quantile"
        )
    return found


def _check_rows(predictions: Array, targets: Array) -> None:
    if len(predictions) != len(targets):
        raise BadInput(
            f"{len(predictions)} predictions with {len(targets)} targets; accepted is a target a "
            "prediction"
        )


@dataclass(frozen=True)
class AbsoluteResidual:
    """min(|y - f(x)| / bound, 1)."""

    bound: float

    def __post_init__(self) -> None:
        _check_bound(self.bound)

    def true_scores(self, predictions: ArrayLike, targets: ArrayLike) -> Array:
        predictions, targets = column("predictions", predictions), column("targets", targets)
        _check_rows(predictions, targets)
        return np.minimum(np.abs(targets - predictions) / self.bound, 1.0)

    def interval(self, predictions: ArrayLike, threshold: float) -> tuple[Array, Array]:
        """Return the interval of all y whose score is at most the threshold.

        At 1 that is the whole line, because scores are clipped there.
        """
        predictions = column("predictions", predictions)
        half = math.inf if threshold >= 1 else threshold * self.bound
        return predictions - half, predictions + half


@dataclass(frozen=True)
class QuantileResidual:
    """CQR (Romano, Patterson, Candes 2019).

    v = max(lo - y, y - hi), clipped to +-bound and moved to [0, 1].
    """

    bound: float

    def __post_init__(self) -> None:
        _check_bound(self.bound)

    def true_scores(self, predictions: ArrayLike, targets: ArrayLike) -> Array:
        predictions, targets = _quantiles(predictions), column("targets", targets)
        _check_rows(predictions, targets)
        excess = np.maximum(predictions[:, 0] - targets, targets - predictions[:, 1])
        return np.clip((excess / self.bound + 1) / 2, 0.0, 1.0)

    def interval(self, predictions: ArrayLike, threshold: float) -> tuple[Array, Array]:
        """Return the interval of all y whose score is at most the threshold.

        At 1 that is the whole line; if the ends cross, the interval is empty.
        """
        predictions = _quantiles(predictions)
        shift = math.inf if threshold >= 1 else (2 * threshold - 1) * self.bound
        return predictions[:, 0] - shift, predictions[:, 1] + shift


REGRESSION_SCORES: dict[str, Callable[..., AbsoluteResidual | QuantileResidual]] = {
    "residual": AbsoluteResidual,
    "cqr": QuantileResidual,
}
