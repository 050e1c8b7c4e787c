"""Scores of numbers in [0, 1], and the intervals of a threshold.

The bound of a score is public and never taken from the data. A target whose score is at most the
threshold always lies in the interval: its ends are rounded outward.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.base import (
    Score,
    UnlabelledScore,
    check_constants,
)
from confide.protocol.scores.task import REGRESSION, Task

Array = NDArray[Any]

# No residual that is a number of single precision overflows when divided by such a bound.
BOUNDS = (1e-12, 1e12)
# More than the relative errors of the few operations behind a score, in units of 2^-53.
_ROUNDING = 16 * 2.0**-53


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


def _pair(values: ArrayLike, *, columns: str) -> NDArray[np.float64]:
    found = _numbers("predictions", values)
    if found.ndim != 2 or found.shape[1] != 2:
        raise BadInput(f"predictions have shape {found.shape}; accepted are two columns, {columns}")
    return found


@dataclass(frozen=True)
class Residual(UnlabelledScore):
    """A score of numbers with a public bound, at which scores are clipped to 1.

    A threshold of 1 or more gives the whole line.
    """

    bound: float

    task: ClassVar[Task] = REGRESSION
    needs: ClassVar[str] = " bound=B"
    randomized = False

    def __post_init__(self) -> None:
        check_constants(self.name, {"bound": self.bound}, {"bound": BOUNDS})

    @classmethod
    def of(cls, given: Mapping[str, float]) -> Self:
        """Make the score from its constants."""
        if "bound" not in given:
            raise BadInput(
                f"score {cls.name} needs a public bound, known without the records; accepted is: "
                f"{cls.name} bound=NUMBER"
            )
        check_constants(cls.name, given, {"bound": BOUNDS})
        return cls(float(given["bound"]))

    @property
    def constants(self) -> Mapping[str, float]:
        return {"bound": self.bound}

    def meaning(self, labels: int) -> str:
        return (
            f"targets that are numbers.\nTheir score is {self.text}. The bound is public: outside "
            f"of {self.in_words(self.bound)}, in the target's\nown unit, a target is not covered, "
            "however far off it is. The target stays here like a label."
        )

    def reach(self, threshold: float) -> float:
        """How far intervals reach beyond what the model returned, in the target's own unit.

        It is infinite at a threshold of 1, and below 0 where quantiles are moved towards each
        other.
        """
        return _length(threshold) * self.bound

    def in_words(self, reach: float) -> str:
        """Say what the interval of a reach is, in the target's own unit."""
        return f"the prediction plus or minus {reach:.4g}"

    def width(self, labels: int) -> int:
        return len(self.columns)

    def true_scores(
        self, results: ArrayLike, truth: ArrayLike, *, u: ArrayLike | None = None
    ) -> Array:
        found, targets = self.checked(results), column("targets", truth)
        if len(found) != len(targets):
            raise BadInput(
                f"{len(found)} predictions with {len(targets)} targets; accepted is a target a "
                "prediction"
            )
        return self._scores(found, targets)

    def owned_scores(self, results: Array, truth: Array, *, u: Array | None) -> Array:
        """A target or a result that is no finite number is never covered: its score is 1."""
        scores = np.ones(len(truth))
        whole = np.isfinite(truth) & np.isfinite(results).all(axis=1)
        found = results[whole].astype(np.float64)
        scores[whole] = self._scores(
            found[:, 0] if len(self.columns) == 1 else found, truth[whole].astype(np.float64)
        )
        return scores

    @abstractmethod
    def checked(self, results: ArrayLike) -> NDArray[np.float64]:
        """Return a model's results as this score reads them, or raise `BadInput`."""

    @abstractmethod
    def _scores(self, results: NDArray[np.float64], targets: NDArray[np.float64]) -> Array:
        """Return the scores of finite results and targets."""

    @abstractmethod
    def interval(self, results: ArrayLike, threshold: float) -> tuple[Array, Array]:
        """Return an interval that holds every y whose score is at most the threshold."""


class AbsoluteResidual(Residual):
    """min(|y - f(x)| / bound, 1)."""

    name = "absolute-residual"
    columns: ClassVar[tuple[str, ...]] = ("prediction",)

    def checked(self, results: ArrayLike) -> NDArray[np.float64]:
        return column("predictions", results)

    def _scores(self, results: NDArray[np.float64], targets: NDArray[np.float64]) -> Array:
        return np.minimum(np.abs(targets - results) / self.bound, 1.0)

    def interval(self, results: ArrayLike, threshold: float) -> tuple[Array, Array]:
        found = self.checked(results)
        return _outward(found, found, self.reach(threshold))


class NormalisedResidual(Residual):
    """min(|y - f(x)| / (s(x) bound), 1), s(x) the scale that the model predicts (Lei et al. 2018).

    A scale below 0 counts as 0: then only f(x) itself conforms. The scale has the target's unit,
    and the bound is a number of scales.
    """

    name = "normalised-residual"
    columns: ClassVar[tuple[str, ...]] = ("prediction", "scale")

    def in_words(self, reach: float) -> str:
        return f"the prediction plus or minus {reach:.4g} times the scale"

    def checked(self, results: ArrayLike) -> NDArray[np.float64]:
        return _pair(results, columns="prediction and scale")

    def _scores(self, results: NDArray[np.float64], targets: NDArray[np.float64]) -> Array:
        distance = np.abs(targets - results[:, 0])
        unit = np.maximum(results[:, 1], 0.0) * self.bound
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.where(distance == 0, 0.0, np.minimum(distance / unit, 1.0))

    def interval(self, results: ArrayLike, threshold: float) -> tuple[Array, Array]:
        found = self.checked(results)
        reach = self.reach(threshold)
        scale = np.maximum(found[:, 1], 0.0)
        half = np.full(len(found), math.inf) if reach == math.inf else reach * scale
        return _outward(found[:, 0], found[:, 0], half)


class QuantileResidual(Residual):
    """CQR (Romano, Patterson, Candes 2019).

    v = max(lo - y, y - hi), clipped to +-bound and moved to [0, 1]. If the ends of its interval
    cross, the interval is empty.
    """

    name = "cqr"
    columns: ClassVar[tuple[str, ...]] = ("lower", "upper")

    def reach(self, threshold: float) -> float:
        return (2 * _length(threshold) - 1) * self.bound

    def in_words(self, reach: float) -> str:
        if reach < 0:
            return f"the lower quantile plus {-reach:.4g} to the upper one minus {-reach:.4g}"
        return f"the lower quantile minus {reach:.4g} to the upper one plus {reach:.4g}"

    def checked(self, results: ArrayLike) -> NDArray[np.float64]:
        return _pair(results, columns="lower and upper quantile")

    def _scores(self, results: NDArray[np.float64], targets: NDArray[np.float64]) -> Array:
        excess = np.maximum(results[:, 0] - targets, targets - results[:, 1])
        return np.clip((excess / self.bound + 1) / 2, 0.0, 1.0)

    def interval(self, results: ArrayLike, threshold: float) -> tuple[Array, Array]:
        found = self.checked(results)
        # The score moves excesses by 1, so its rounding is relative to the bound.
        shift = self.reach(threshold) + self.bound * _ROUNDING
        return _outward(found[:, 0], found[:, 1], shift)


def _length(threshold: float) -> float:
    return math.inf if threshold >= 1 else threshold


def _outward(
    low: NDArray[np.float64], high: NDArray[np.float64], shift: float | NDArray[np.float64]
) -> tuple[Array, Array]:
    """Move the ends apart by the shift and a little more, so that rounding loses no target."""
    wider = shift + np.abs(shift) * _ROUNDING
    return np.nextafter(low - wider, -math.inf), np.nextafter(high + wider, math.inf)


RESIDUALS: dict[str, type[Residual]] = {
    score.name: score for score in (AbsoluteResidual, NormalisedResidual, QuantileResidual)
}


def residual(score: Score) -> Residual:
    """Return a score as one of numbers; refuse one of labels."""
    return Residual.narrowed(score, accepted="one of numbers")
