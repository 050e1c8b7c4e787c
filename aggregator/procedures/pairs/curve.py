"""What noisy reports say of the coverage curves of all labels; no guarantee rests on it.

Curves are logistic in the logit u of the threshold: F(u) = expit(logit(level) + slope (u - where)).
Few reports have one label, so its slope is expected to be near that of all labels, and the place
where it reaches the level as far from that of other labels as these are from each other. All curves
of a grid are weighed by how well they fit; the grid is then made finer where they do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, logsumexp

from confide.aggregator.procedures.ladder import LOGIT_REACH

Floats = NDArray[np.float64]

_GRID = np.append(np.linspace(-LOGIT_REACH - 2, LOGIT_REACH + 2, 109), [20.0, 24.0])
_NEAR = np.linspace(-4, 8, 241)
_WHERE = np.linspace(-LOGIT_REACH - 2, LOGIT_REACH + 2, 161)
_SLOPES = np.geomspace(0.1, 30, 11)
# The prior of the slope of all labels, and how far that of one label is from it, as logarithms.
_SLOPE, _SPREAD, _CLASS_SPREAD = 0.5, 1.0, 0.4
# Labels are never thought to be closer to each other than this, in units of logit(F).
_APART = 0.25
_FINER, _FINE_WHERE, _FINE_SLOPES = 2, 25, 9
# Curves with less than this share of the weight of the best one are left out.
_LEAST_WEIGHT = 1e-3


@dataclass(frozen=True)
class Counts:
    """How many of the reports at some thresholds support the label with bit 1, and with bit 0.

    `hit` and `spill` are those of the channel, and `share` is the share of records of this label.
    """

    thresholds: Floats
    reports: Floats
    ones: Floats
    zeros: Floats
    hit: float
    spill: float
    share: float

    def fit(self, where: Floats, slopes: Floats, *, level: float) -> Floats:
        """The log-likelihood of every curve of a grid."""
        inner = (self.thresholds > 0) & (self.thresholds < 1) & (self.reports > 0)
        n, ones, zeros = (one[inner] for one in (self.reports, self.ones, self.zeros))
        away = logit(self.thresholds[inner]) - where[:, None, None]
        covered = (
            self.share * (self.hit - self.spill) * expit(logit(level) + slopes[:, None] * away)
        )
        one = self.spill + covered
        zero = self.spill + self.share * (self.hit - self.spill) - covered
        return np.asarray(
            np.log(one) @ ones
            + np.log1p(-one) @ (n - ones)
            + np.log(zero) @ zeros
            + np.log1p(-zero) @ (n - zeros)
        )


@dataclass(frozen=True)
class ClassCurve:
    """The mean of the curves that fit, and the standard deviation among them, at some logits."""

    logits: Floats
    coverage: Floats
    doubt: Floats
    slope: float

    @property
    def thresholds(self) -> Floats:
        return np.asarray(expit(self.logits))

    def window(self, level: float) -> tuple[float, float]:
        """The logits between which the level may be reached, within two standard deviations."""
        near = self.logits[
            (self.coverage + 2 * self.doubt >= level) & (self.coverage - 2 * self.doubt <= level)
        ]
        if not near.size:
            near = self.logits[[int(np.abs(self.coverage - level).argmin())]]
        return float(near[0]) - 0.2 / self.slope, float(near[-1]) + 0.2 / self.slope


@dataclass(frozen=True)
class _Prior:
    """Where labels are expected to reach the level, and how steeply."""

    slope: float
    where: float
    apart: float

    def weigh(self, where: Floats, slopes: Floats) -> Floats:
        """The logarithm; the tails are heavy where labels differ, so that one may be far away."""
        off = (where - self.where) / self.apart
        steep = np.log(slopes / self.slope) / _CLASS_SPREAD
        return np.asarray((-2 * np.log1p(off**2 / 3))[:, None] - 0.5 * steep**2)


def class_curves(found: Sequence[Counts], *, level: float) -> list[ClassCurve]:
    """Weigh curves for every label, by its own reports and by what all labels have in common."""
    fits = np.array([one.fit(_WHERE, _SLOPES, level=level) for one in found])
    prior = _together(fits)
    return [_curve(one, prior, fit, level=level) for one, fit in zip(found, fits, strict=True)]


def _together(fits: Floats) -> _Prior:
    """What labels have in common: the slope, and the mean and deviation of their places.

    The deviation is that of DerSimonian and Laird 1986.
    """
    slopes = logsumexp(fits, axis=1).sum(axis=0) - 0.5 * (np.log(_SLOPES / _SLOPE) / _SPREAD) ** 2
    slope = math.exp(float(_normed(slopes) @ np.log(_SLOPES)))
    steep = fits - 0.5 * (np.log(_SLOPES / slope) / _CLASS_SPREAD) ** 2
    places = np.array([_normed(one).sum(axis=1) for one in steep])
    mean = places @ _WHERE
    step = float(_WHERE[1] - _WHERE[0])
    precision = 1 / (np.maximum(places @ _WHERE**2 - mean**2, 0.0) + step**2 / 12)
    total = precision.sum()
    centre = float(precision @ mean / total)
    excess = float(precision @ (mean - centre) ** 2) - (len(mean) - 1)
    spread = max(0.0, excess) / max(float(total - (precision**2).sum() / total), 1e-12)
    return _Prior(slope, centre, math.sqrt(spread + (_APART / slope) ** 2 + 1 / total))


def _normed(logs: Floats) -> Floats:
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _curve(one: Counts, prior: _Prior, fit: Floats, *, level: float) -> ClassCurve:
    """The mean curve of one label, on a grid that is fine where curves fit."""
    where, slopes = _WHERE, _SLOPES
    weights = _normed(fit + prior.weigh(where, slopes))
    for _ in range(_FINER):
        where = np.linspace(*_reach(where, weights.max(axis=1)), _FINE_WHERE)
        steep = _reach(np.log(slopes), weights.max(axis=0))
        slopes = np.exp(np.linspace(*steep, _FINE_SLOPES))
        weights = _normed(one.fit(where, slopes, level=level) + prior.weigh(where, slopes))
    centre = float(weights.sum(axis=1) @ where)
    slope = math.exp(float(weights.sum(axis=0) @ np.log(slopes)))
    logits = np.unique(np.append(_GRID, np.clip(centre + _NEAR / slope, _GRID[0], _GRID[-1])))
    rows, columns = np.nonzero(weights >= _LEAST_WEIGHT * weights.max())
    kept = weights[rows, columns] / weights[rows, columns].sum()
    away = logits - where[rows, None]
    curves = expit(logit(level) + slopes[columns, None] * away)
    mean = kept @ curves
    return ClassCurve(logits, mean, np.sqrt(np.maximum(kept @ curves**2 - mean**2, 0.0)), slope)


def _reach(grid: Floats, weights: Floats) -> tuple[float, float]:
    """The part of a grid where weights are worth something, and one step more."""
    near = np.flatnonzero(weights >= _LEAST_WEIGHT * weights.max())
    return float(grid[max(near[0] - 1, 0)]), float(grid[min(near[-1] + 1, len(grid) - 1)])
