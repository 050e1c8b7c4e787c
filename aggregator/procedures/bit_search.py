"""Chooses the thresholds that a bits campaign asks next; no guarantee depends on this module."""

import math

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from confide.aggregator.binomial import upper_quantile
from confide.aggregator.procedures.certify import Search
from confide.aggregator.procedures.curve import Curve, fit_curve
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitTally


class Answers:
    """All answers so far, for the curve; a threshold of 0 or 1 says nothing and is left out."""

    def __init__(self, channel: Bit, aim: float) -> None:
        self._channel, self.aim = channel, aim
        self._u: list[float] = []
        self._n: list[int] = []
        self._ones: list[int] = []

    def add(self, thresholds: tuple[float, ...], tally: BitTally) -> None:
        for q, n, ones in zip(thresholds, tally.answers, tally.ones, strict=True):
            if n and 0 < q < 1:
                self._u.append(float(logit(q)))
                self._n.append(n)
                self._ones.append(ones)

    def curve(self) -> Curve:
        u, n, ones = (
            np.array(column, dtype=np.float64) for column in (self._u, self._n, self._ones)
        )
        return fit_curve(u, n, ones, channel=self._channel, level=self.aim)


def _spread(rate: float, channel: Bit) -> float:
    """The standard deviation of one answer in units of coverage."""
    return math.sqrt(rate * (1 - rate)) / float(channel.hit - channel.spill)


def aim_for(m0: float, channel: Bit, *, alpha: float, answers: int) -> float:
    """The coverage at which a test on `answers` passes nine times in ten, at most half-way to 1."""
    margin = -2 * float(ndtri(0.1)) * _spread(m0, channel) / math.sqrt(max(answers, 1))
    return min(1 - alpha + margin, 1 - alpha / 2)


def narrow(curve: Curve, aim: float, window: tuple[float, float]) -> tuple[float, float]:
    """The range of logits at which the curve may reach the aim, within two standard errors."""
    grid = curve.grid()
    coverage, error = curve.predict(grid)
    near = grid[(coverage + 2 * error >= aim) & (coverage - 2 * error <= aim)]
    if near.size == 0:
        return window
    margin = 0.1 * float(near[-1] - near[0]) + 0.3 / curve.slope
    return max(float(near[0]) - margin, float(grid[0])), min(
        float(near[-1]) + margin, float(grid[-1])
    )


def place(
    curve: Curve, search: Search, *, channel: Bit, alpha: float, rest: int, last: bool
) -> float | None:
    """The allowed threshold of least expected excess coverage, or None if none helps.

    The expectation is for asking all remaining answers there. Before the last stage the error of
    the curve counts half, because later stages can still correct it.
    """
    grid = curve.grid()
    coverage, error = curve.predict(grid)
    hit, spill = float(channel.hit), float(channel.spill)
    rate = spill + (hit - spill) * coverage
    needed = upper_quantile(search.level, rest, search.null) + 1
    doubt = error if last else error / 2
    spread = np.sqrt(rest * rate * (1 - rate) + (rest * (hit - spill) * doubt) ** 2)
    passes = ndtr((rest * rate - needed) / np.maximum(spread, 1e-9))
    excess = coverage - (1 - alpha)
    fallback = alpha
    if search.certified < 1:
        fallback = min(alpha, max(0.0, float(np.interp(logit(search.certified), grid, excess))))
    q = expit(grid)
    cost = np.where(
        (q >= search.floor) & (q < search.certified),
        passes * excess + (1 - passes) * fallback,
        np.inf,
    )
    best = int(cost.argmin())
    return float(q[best]) if cost[best] < 0.999 * fallback else None
