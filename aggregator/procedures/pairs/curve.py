"""What noisy estimates say of the coverage curve of one label; no guarantee rests on it.

Curves are logistic in the logit u of the threshold: F(u) = expit(logit(level) + slope (u - where)).
Few reports have one label, so its slope is expected to be near that of all labels together. All
curves of a grid are weighed by how well they fit.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from confide.aggregator.procedures.ladder import LOGIT_REACH

Floats = NDArray[np.float64]

_GRID = np.linspace(-LOGIT_REACH - 2, LOGIT_REACH + 2, 321)
_WHERE = np.linspace(-LOGIT_REACH - 2, LOGIT_REACH + 2, 107)
_SLOPES = np.geomspace(0.1, 30, 11)
# The prior of the slope of all labels, and how far that of one label is from it, as logarithms.
_SLOPE, _SPREAD, _CLASS_SPREAD = 0.5, 1.0, 0.4


@dataclass(frozen=True)
class Estimates:
    """Unbiased estimates of coverage at some thresholds, with their variances."""

    thresholds: Floats
    coverage: Floats
    variance: Floats


@dataclass(frozen=True)
class ClassCurve:
    """The mean of the curves that fit, and the standard deviation among them, on a grid."""

    coverage: Floats
    doubt: Floats
    slope: float

    @property
    def thresholds(self) -> Floats:
        return np.asarray(expit(_GRID))

    def window(self, level: float) -> tuple[float, float]:
        """The logits between which the level may be reached, within two standard deviations."""
        near = _GRID[
            (self.coverage + 2 * self.doubt >= level) & (self.coverage - 2 * self.doubt <= level)
        ]
        if not near.size:
            near = _GRID[[int(np.abs(self.coverage - level).argmin())]]
        return float(near[0]) - 0.2 / self.slope, float(near[-1]) + 0.2 / self.slope


def class_curve(found: Estimates, *, level: float, like: ClassCurve | None = None) -> ClassCurve:
    """Weigh all curves by the estimates; `like` is the curve of all labels together."""
    inner = (found.thresholds > 0) & (found.thresholds < 1)
    u, coverage, variance = (
        column[inner] for column in (logit(found.thresholds), found.coverage, found.variance)
    )
    slope, spread = (_SLOPE, _SPREAD) if like is None else (like.slope, _CLASS_SPREAD)
    off = coverage - _curves(level, u)
    weights = -0.5 * (off**2 / variance).sum(axis=-1)
    weights -= 0.5 * (np.log(_SLOPES / slope) / spread) ** 2
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    curves, squares = _on_grid(level)
    mean = np.tensordot(weights, curves, 2)
    second = np.tensordot(weights, squares, 2)
    fitted = math.exp(float((weights * np.log(_SLOPES)).sum()))
    return ClassCurve(mean, np.sqrt(np.maximum(second - mean**2, 0.0)), fitted)


def _curves(level: float, u: Floats) -> Floats:
    """Every curve of the grid, (where, slope, u), at these logits."""
    away = u - _WHERE[:, None, None]
    return np.asarray(expit(logit(level) + _SLOPES[:, None] * away))


@lru_cache(maxsize=4)
def _on_grid(level: float) -> tuple[Floats, Floats]:
    """Every curve on the grid of thresholds, and its square."""
    curves = _curves(level, _GRID)
    return curves, curves**2
