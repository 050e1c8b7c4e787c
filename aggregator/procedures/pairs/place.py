"""Chooses the threshold of a label that a stage asks; no guarantee depends on this module."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from confide.aggregator.procedures.pairs.curve import ClassCurve
from confide.aggregator.procedures.pairs.stages import NOTHING, AskedOfLabel, Levels

Floats = NDArray[np.float64]

# The excess over the target at which a campaign is expected to end, in standard errors of the
# reports left after a stage: where the stage passed, and where it did not. What a stage passed
# above that counts by this share.
DOWN, AGAIN, ABOVE = 3.4, 7.5, 0.43
# A trivial threshold exceeds the target by alpha, and counts as this many times that.
TRIVIAL = 2.6
# The share of its capital that a stage bets on passing when it ends: where it is asked to, and
# where all reports to come test one threshold together. These also tell more of the curve, so less
# of the doubt about it counts.
EARLY, HARDLY = 0.3, 0.1
DOUBT_LATER = 0.6


@dataclass(frozen=True)
class LabelAhead:
    """Standard errors of coverage that the reports of a stage show, and those that follow it."""

    now: float
    later: float

    @property
    def together(self) -> float:
        return 1 / math.hypot(1 / self.now, 1 / self.later)


def place(curve: ClassCurve, levels: Levels, ahead: LabelAhead, *, alpha: float) -> AskedOfLabel:
    """The threshold to ask next, by the excess that is expected in the end.

    It is one that all reports to come test together, or one that should pass now, so that a lower
    one follows.
    """
    q = curve.thresholds
    able = q < levels.certified
    if not able.any():
        return NOTHING
    excess, level = curve.coverage - (1 - alpha), np.exp(_levels(levels, q))
    fallback = TRIVIAL * alpha
    if levels.certified < 1:
        fallback = float(np.interp(levels.certified, q, excess))

    def cost(level: Floats, error: float, doubt: Floats, *, after: Floats, else_: float) -> Floats:
        passes = ndtr((excess + ndtri(level) * error) / np.hypot(error, doubt))
        expected = passes * after + (1 - passes) * np.maximum(else_, after)
        return np.where(able, expected, math.inf)

    doubt = curve.doubt * (DOUBT_LATER if ahead.later < math.inf else 1.0)
    stay = cost(level, ahead.together, doubt, after=excess, else_=fallback)
    if ahead.later == math.inf:
        return AskedOfLabel(_best(q, stay), 1.0)
    lower, again = DOWN * ahead.later, min(fallback, AGAIN * ahead.later)
    down = np.where(excess > lower, lower + ABOVE * (excess - lower), excess)
    go = cost(level * EARLY, ahead.now, curve.doubt, after=down, else_=again)
    if go.min() <= stay.min():
        return AskedOfLabel(_best(q, go), EARLY)
    return AskedOfLabel(_best(q, stay), HARDLY)


def _best(q: Floats, cost: Floats) -> float:
    """The threshold that costs least, the highest of several."""
    return float(q[len(q) - 1 - int(cost[::-1].argmin())])


def _levels(levels: Levels, q: Floats) -> Floats:
    """The logarithm of the level at which each threshold would be tested, less what lies earned."""
    breaks = sorted(at for at, _ in levels.moved)
    known = np.array([levels.log_level(at) for at in (0.0, *breaks)])
    return np.minimum(known[np.searchsorted(breaks, q, side="right")] - levels.lies, -1e-9)
