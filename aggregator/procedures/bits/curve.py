"""A local estimate of the coverage curve F from randomised bits, to decide where to ask next.

No guarantee rests on it.

Thresholds are seen as logits u = log(q / (1 - q)), in which coverage curves of classifiers are
close to logistic near the target, whether scores spread over [0, 1] or crowd at 1: F(u) =
expit(height + slope (u - centre)).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from confide.aggregator.procedures.ladder import LOGIT_REACH
from confide.protocol.channels.bit import Bit

Floats = NDArray[np.float64]

# In units of logit(F): answers further than this from the target level hardly count. The more is
# known about the curve, the less far: a few times the square root of the error of its height.
_LEAST_REACH, _REACH, _MOST_REACH = 0.5, 4.0, 2.0
# A weak prior on the logarithm of the slope keeps it in reach when few answers are in.
_SLOPE, _SLOPE_PRECISION = 0.5, 1.0
_GRID = np.linspace(-LOGIT_REACH - 2, LOGIT_REACH + 2, 601)
_RISE = np.linspace(-4, 6, 501)
_LEAST_SLOPE = 0.05
_PASSES = 3
# Answers far from the target keep this much weight, so that the fit cannot drift away from them.
_LEAST_WEIGHT = 0.02
_START_SLOPES = np.geomspace(0.05, 400, 14)
_FURTHEST = 24.0
# Numbers that are computed at once, so that they stay near the processor.
_TOGETHER = 1 << 14
# Answers cannot tell how steep the curve is between two thresholds that were asked, so from one to
# the next logit(F) rises by at most this much.
_MOST_RISE = 4.0
# How much further up a threshold is placed, for each unit of logit(F) above the centre.
_CAUTION = 0.4


@dataclass(frozen=True)
class Curve:
    """A fitted curve and the covariance of its height and the logarithm of its slope."""

    centre: float
    height: float
    slope: float
    covariance: Floats

    def grid(self) -> Floats:
        """Logits from end to end, dense where the curve rises."""
        return np.unique(
            np.concatenate([_GRID, np.clip(self.centre + _RISE / self.slope, _GRID[0], _GRID[-1])])
        )

    def threshold(self, coverage: Floats | float) -> Any:
        """Where the curve has this coverage, on the safe side far above the centre.

        Curves are logistic near the target only, and further up they tend to rise more slowly.
        """
        rise = logit(coverage) - self.height
        u = self.centre + rise * (1 + _CAUTION * np.maximum(rise, 0.0)) / self.slope
        return expit(np.clip(u, -_FURTHEST, _FURTHEST))

    def coverage(self, threshold: float) -> float:
        """Coverage at a threshold."""
        return float(self.predict(np.array([logit(threshold)]))[0][0])

    def error(self, coverage: float) -> float:
        """The standard error of the curve at the threshold whose coverage is the given one."""
        return float(self.predict(np.array([logit(self.threshold(coverage))]))[1][0])

    def predict(self, u: Floats) -> tuple[Floats, Floats]:
        """Coverage at the given logits, and its standard error."""
        x = self.slope * (u - self.centre)
        coverage = expit(self.height + x)
        variance = (
            self.covariance[0, 0] + 2 * x * self.covariance[0, 1] + x * x * self.covariance[1, 1]
        )
        return coverage, np.sqrt(variance) * coverage * (1 - coverage)


def fit_curve(u: Floats, answers: Floats, ones: Floats, *, channel: Bit, level: float) -> Curve:
    """Maximum likelihood through the channel; answers near the target level weigh more."""
    seen = _Seen(u, answers, ones, channel=channel)
    target = float(logit(level))
    centre, slope = seen.start()
    curve = Curve(centre, 0.0, slope, np.eye(2))
    for _ in range(_PASSES):
        curve = seen.climbed(_moved(curve, target), target)
    return _moved(curve, target)


def _moved(curve: Curve, target: float) -> Curve:
    """The same curve, with its centre where it reaches the target."""
    reach = (target - curve.height) / curve.slope
    centre = float(np.clip(curve.centre + reach, -_FURTHEST, _FURTHEST))
    height = curve.height + curve.slope * (centre - curve.centre)
    return replace(curve, centre=centre, height=height)


class _Seen:
    """The answers at the logits asked."""

    def __init__(self, u: Floats, answers: Floats, ones: Floats, *, channel: Bit) -> None:
        self._u, self._n, self._ones = u, answers, ones
        self._hit, self._spill = float(channel.hit), float(channel.spill)
        self._asked = np.unique(np.concatenate([[_GRID[0]], u, [_GRID[-1]]]))

    def most_slope(self, centre: Floats | float) -> Floats:
        """The steepest slope that answers around the centres can tell."""
        above = np.clip(np.searchsorted(self._asked, centre), 1, len(self._asked) - 1)
        return np.asarray(_MOST_RISE / (self._asked[above] - self._asked[above - 1]))

    def likelihood(self, eta: Floats, slope: Floats | float, weights: Floats | float) -> Floats:
        """The weighted logarithm, with the prior; the last axis of eta is that of the answers."""
        rate = expit(eta)
        rate *= self._hit - self._spill
        rate += self._spill
        # Bounded away from zero: at large epsilon rates round to 0 or 1.
        rate = np.minimum(np.maximum(rate, 1e-12, out=rate), 1 - 1e-12, out=rate)
        each = np.log(rate)
        each *= self._ones
        rate = np.log1p(np.negative(rate, out=rate), out=rate)
        rate *= self._n - self._ones
        each += rate
        each *= weights
        prior = 0.5 * _SLOPE_PRECISION * np.log(slope / _SLOPE) ** 2
        return np.asarray(each.sum(axis=-1) - prior)

    def start(self) -> tuple[float, float]:
        """The best of a grid of curves, so that what follows climbs the right hill."""
        between = (self._asked[1:] + self._asked[:-1]) / 2
        rows = np.concatenate([np.linspace(_GRID[0], _GRID[-1], 73), between])
        steep = np.minimum(_START_SLOPES, self.most_slope(rows)[:, None])
        row, column = np.nonzero(np.diff(steep, axis=1, prepend=0.0))
        centres, slopes = rows[row], steep[row, column]
        parts = 1 + len(centres) * len(self._u) // _TOGETHER
        found = [
            self.likelihood(slope[:, None] * (self._u - centre[:, None]), slope, 1.0)
            for centre, slope in zip(
                np.array_split(centres, parts), np.array_split(slopes, parts), strict=True
            )
        ]
        best = int(np.concatenate(found).argmax())
        return float(centres[best]), float(slopes[best])

    def climbed(self, curve: Curve, target: float) -> Curve:
        """Newton steps to the best height and slope, each halved until it leads up."""
        offset, most = self._u - curve.centre, float(self.most_slope(curve.centre))
        height, slope = curve.height, min(curve.slope, most)
        known = math.sqrt(math.sqrt(curve.covariance[0, 0]))
        reach = min(max(_REACH * known, _LEAST_REACH), _MOST_REACH)
        distance = (height + slope * offset - target) / reach
        weights = np.maximum(np.exp(-0.5 * distance**2), _LEAST_WEIGHT)
        value = self.likelihood(height + slope * offset, slope, weights)
        for _ in range(30):
            gradient, information = self._derivatives(height, slope, offset=offset, weights=weights)
            step = np.clip(np.linalg.solve(information, gradient), -1, 1)
            for _ in range(6):
                higher = height + step[0]
                steeper = min(max(slope * math.exp(step[1]), _LEAST_SLOPE), most)
                better = self.likelihood(higher + steeper * offset, steeper, weights)
                if better >= value:
                    break
                step = step / 2
            if better < value + 1e-6:
                break
            height, slope, value = higher, steeper, better
        information = self._derivatives(height, slope, offset=offset, weights=weights)[1]
        return Curve(curve.centre, height, slope, np.asarray(np.linalg.inv(information)))

    def _derivatives(
        self, height: float, slope: float, *, offset: Floats, weights: Floats
    ) -> tuple[Floats, Floats]:
        """The gradient and the Fisher information for the height and the logarithm of the slope."""
        x = slope * offset
        coverage = expit(height + x)
        rate = self._spill + (self._hit - self._spill) * coverage
        spread = np.maximum(rate * (1 - rate), 1e-12)
        steepness = (self._hit - self._spill) * coverage * (1 - coverage) / spread
        pull = weights * (self._ones - self._n * rate) * steepness
        mass = weights * self._n * steepness**2 * spread
        prior = -math.log(slope / _SLOPE) * _SLOPE_PRECISION
        return np.array([pull.sum(), pull @ x + prior]), np.array(
            [[mass.sum() + 1e-3, mass @ x], [mass @ x, mass @ (x * x) + _SLOPE_PRECISION]]
        )
