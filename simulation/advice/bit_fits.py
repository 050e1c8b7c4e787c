"""The curves that many bits campaigns fit, all at once: `confide.aggregator.procedures.curve`.

The model is the same, F(u) = expit(height + slope (u - centre)) in logits u of thresholds, with the
same prior, weights and bounds. Fits start from the true curve, where a procedure has to look for
the hill to climb, and take a fixed number of Newton steps.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from confide.aggregator.procedures.curve import (
    FURTHEST,
    LEAST_REACH,
    LEAST_SLOPE,
    LEAST_WEIGHT,
    MOST_REACH,
    MOST_RISE,
    REACH,
    SLOPE,
    SLOPE_PRECISION,
)
from confide.aggregator.procedures.ladder import LOGIT_REACH
from confide.protocol.channels.bit import Bit

Floats = NDArray[np.float64]

END = LOGIT_REACH + 2


@dataclass
class Fits:
    """A fit for each campaign, a row each, to the answers at the logits that it asked."""

    channel: Bit
    target: float
    centre: Floats
    log_slope: Floats
    height: Floats = field(init=False)
    # The covariance of height and logarithm of the slope: variances, and what is between them.
    variance: tuple[Floats, Floats, Floats] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.centre)
        self._u, self._ones = np.zeros((count, 0)), np.zeros((count, 0))
        self._n = np.zeros(0)
        self.height = np.full(count, float(logit(self.target)))
        self.variance = np.ones(count), np.zeros(count), np.ones(count)

    @property
    def slope(self) -> Floats:
        return np.exp(self.log_slope)

    def add(self, u: Floats, answers: float, ones: Floats) -> None:
        """Take in `answers` answers at each of these logits (a row each campaign)."""
        self._u = np.concatenate([self._u, u], axis=1)
        self._ones = np.concatenate([self._ones, ones], axis=1)
        self._n = np.concatenate([self._n, np.full(u.shape[1], float(answers))])

    def climb(self, *, passes: int, steps: int) -> None:
        """Fit again: weights by the distance to the target, then Newton steps."""
        goal = float(logit(self.target))
        for _ in range(passes):
            self._recentre(goal)
            reach = np.clip(REACH * self.variance[0] ** 0.25, LEAST_REACH, MOST_REACH)
            away = (self.height[:, None] + self._distance() - goal) / reach[:, None]
            weights = np.maximum(np.exp(-0.5 * away**2), LEAST_WEIGHT)
            most = np.log(self._most_slope())
            for _ in range(steps):
                pull, mass = self._derivatives(weights)
                (a, b), (p, m, q) = pull, mass
                size = p * q - m * m
                self.height = self.height + np.clip((q * a - m * b) / size, -1, 1)
                turned = self.log_slope + np.clip((p * b - m * a) / size, -1, 1)
                self.log_slope = np.clip(turned, math.log(LEAST_SLOPE), most)
            p, m, q = self._derivatives(weights)[1]
            size = p * q - m * m
            self.variance = q / size, -m / size, p / size
        self._recentre(goal)

    def at(self, coverage: Floats | float) -> Floats:
        """The logits at which the fits have these coverages."""
        return np.asarray(self.centre + (logit(coverage) - self.height) / self.slope)

    def predict(self, u: Floats) -> tuple[Floats, Floats]:
        """Coverage at these logits (a row each campaign, or one number), and its standard error."""
        wide = u.ndim == 2
        first, mixed, second = (part[:, None] if wide else part for part in self.variance)
        centre, slope, height = (
            part[:, None] if wide else part for part in (self.centre, self.slope, self.height)
        )
        x = slope * (u - centre)
        coverage = expit(height + x)
        error = np.sqrt(np.maximum(first + 2 * x * mixed + x * x * second, 0.0))
        return coverage, error * coverage * (1 - coverage)

    def seen_above(self, level: Floats) -> Floats:
        """`bit_search.Answers.seen_above` for every campaign, as a logit; -inf if there is none."""
        hit, spill = float(self.channel.hit), float(self.channel.spill)
        order = np.argsort(self._u, axis=1)
        ones, answers = np.take_along_axis(self._ones, order, axis=1), self._n[order]
        # Answers count together with those of the threshold below.
        ones[:, 1:] += np.take_along_axis(self._ones, order, axis=1)[:, :-1]
        answers[:, 1:] += self._n[order][:, :-1]
        rate = (ones + 0.5) / (answers + 1)
        low = rate - 2 * np.sqrt(rate * (1 - rate) / answers)
        above = (low - spill) / (hit - spill) >= level[:, None]
        first = np.take_along_axis(self._u, order, axis=1)[np.arange(len(above)), above.argmax(1)]
        return np.where(above.any(axis=1), first, -np.inf)

    def _distance(self) -> Floats:
        return self.slope[:, None] * (self._u - self.centre[:, None])

    def _recentre(self, goal: float) -> None:
        centre = np.clip(self.centre + (goal - self.height) / self.slope, -FURTHEST, FURTHEST)
        self.height = self.height + self.slope * (centre - self.centre)
        self.centre = centre

    def _most_slope(self) -> Floats:
        """The steepest slope that answers around the centres can tell."""
        centre = np.clip(self.centre, -END, END)[:, None]
        above = np.where(self._u > centre, self._u, END).min(axis=1)
        below = np.where(self._u <= centre, self._u, -END).max(axis=1)
        return MOST_RISE / np.maximum(above - below, 1e-6)

    def _derivatives(
        self, weights: Floats
    ) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats, Floats]]:
        """The gradients, and the entries of the information, for height and logarithm of slope."""
        hit, spill = float(self.channel.hit), float(self.channel.spill)
        x = self._distance()
        coverage = expit(self.height[:, None] + x)
        rate = spill + (hit - spill) * coverage
        spread = np.maximum(rate * (1 - rate), 1e-12)
        steepness = (hit - spill) * coverage * (1 - coverage) / spread
        pull = weights * (self._ones - self._n * rate) * steepness
        mass = weights * self._n * steepness**2 * spread
        prior = -(self.log_slope - math.log(SLOPE)) * SLOPE_PRECISION
        gradient = pull.sum(axis=1), (pull * x).sum(axis=1) + prior
        return gradient, (
            mass.sum(axis=1) + 1e-3,
            (mass * x).sum(axis=1),
            (mass * x * x).sum(axis=1) + SLOPE_PRECISION,
        )
