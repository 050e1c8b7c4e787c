"""A local estimate of the coverage curve F from randomised bits, to decide where to ask next.

No guarantee rests on it.

Thresholds are seen as logits u = log(q / (1 - q)), in which coverage curves of classifiers are
close to logistic near the target, whether scores spread over [0, 1] or crowd at 1: F(u) =
expit(height + slope (u - centre)).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from confide.aggregator.procedures.ladder import LOGIT_REACH
from confide.protocol.channels.bit import Bit

Floats = NDArray[np.float64]

# In units of logit(F): answers further than this from the target level hardly count.
_REACH = 2.0
# A weak prior on the logarithm of the slope keeps it in reach when few answers are in.
_SLOPE, _SLOPE_PRECISION = 0.5, 1.0
_GRID = np.linspace(-LOGIT_REACH - 2, LOGIT_REACH + 2, 601)
_RISE = np.linspace(-4, 6, 501)
_LEAST_SLOPE, _MOST_SLOPE = 0.05, 1e4


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
    hit, spill = float(channel.hit), float(channel.spill)
    target = float(logit(level))
    weights = np.ones_like(u)
    centre, height, slope = 0.0, 0.0, _SLOPE

    def newton() -> tuple[Floats, Floats]:
        x = slope * (u - centre)
        coverage = expit(height + x)
        rate = spill + (hit - spill) * coverage
        # Bounded away from zero: at large epsilon rates round to 0 or 1.
        spread = np.maximum(rate * (1 - rate), 1e-12)
        steepness = (hit - spill) * coverage * (1 - coverage) / spread
        pull = weights * (ones - answers * rate) * steepness
        mass = weights * answers * steepness**2 * spread
        gradient = np.array([pull.sum(), pull @ x - math.log(slope / _SLOPE) * _SLOPE_PRECISION])
        information = np.array(
            [[mass.sum() + 1e-3, mass @ x], [mass @ x, mass @ (x * x) + _SLOPE_PRECISION]]
        )
        return gradient, information

    for _ in range(4):
        for _ in range(30):
            gradient, information = newton()
            step = np.clip(np.linalg.solve(information, gradient), -1, 1)
            height += step[0]
            slope = min(max(slope * math.exp(step[1]), _LEAST_SLOPE), _MOST_SLOPE)
            if np.abs(step).max() < 1e-4:
                break
        moved = float(np.clip((target - height) / slope, -24 - centre, 24 - centre))
        centre, height = centre + moved, height + slope * moved
        weights = np.exp(-0.5 * ((height + slope * (u - centre) - target) / _REACH) ** 2)
    return Curve(centre, height, slope, np.asarray(np.linalg.inv(newton()[1]), dtype=np.float64))
