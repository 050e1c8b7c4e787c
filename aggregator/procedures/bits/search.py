"""Chooses the thresholds that a bits campaign asks next; no guarantee depends on this module."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri

from confide.aggregator.procedures.bits.curve import Curve, fit_curve
from confide.aggregator.procedures.certify import Search
from confide.aggregator.procedures.levels import LevelSearch
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.parts import BitTally

Floats = NDArray[np.float64]
Searching = Search | LevelSearch

# How far above what a stage needs to pass at once its coverage should be, in standard errors; and
# for the last stage, which nothing follows.
SURE, SURE_LAST = 0.73, 1.38
# Where the highest of many owners' thresholds is asked, which is high enough for most of them.
SURE_AMONG_MANY = 0.1
# The next threshold below a certified one has this share of its excess, less a standard error.
GO_DOWN = 0.62
# After a failure a threshold this close (in standard errors) to the best one is asked again; and
# what failing once more costs, in standard errors of the answers left then.
STAY, LATER = 0.5, 6.0
# A trivial threshold exceeds the target by alpha, and counts as this many times that.
TRIVIAL = 2.0
# Coverage asked for exceeds the target by at most this share of alpha.
MOST_OF_ALPHA = 0.9
# While nothing is certified, and less than this share of the records is left after a stage, the
# stage asks where answers themselves show coverage far above the target. With so few records that
# they cannot show it, a stage asks near the top, and earlier.
LATE, LATE_FEW = 0.4, 0.6
TOP = float(expit(24.0))
_CANDIDATES = 200
_NEAR = np.arange(0, 8, 0.1)


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

    def seen_above(self, level: float) -> float:
        """The lowest threshold at which answers themselves show coverage well above a level.

        Its answers count together with those of the threshold below it, less two standard errors.
        It is 0 if there is none.
        """
        hit, spill = float(self._channel.hit), float(self._channel.spill)
        order = np.argsort(self._u)
        n, ones = (np.array(column)[order] for column in (self._n, self._ones))
        for i, u in enumerate(np.array(self._u)[order]):
            own = slice(max(i - 1, 0), i + 1)
            total = int(n[own].sum())
            rate = (int(ones[own].sum()) + 0.5) / (total + 1)
            low = rate - 2 * math.sqrt(rate * (1 - rate) / total)
            if (low - spill) / (hit - spill) >= level:
                return float(expit(u))
        return 0.0

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


@dataclass(frozen=True)
class Ahead:
    """The answers of a stage and of those after it, and the standard error of all planned ones.

    `among_many` tells whether the highest of the thresholds that many owners need is asked.
    """

    answers: int
    rest: int
    unit: float
    among_many: bool = False


def place(
    answers: Answers, search: Searching, stage: Ahead, *, channel: Bit, alpha: float
) -> float | None:
    """The threshold to ask next, or None if none helps.

    The rules say by how much its coverage should exceed the target, in standard errors; the curve
    says where that is.
    """
    curve, goal = answers.curve(), 1 - alpha
    sigma = _spread(search.null, channel)
    doubt = curve.error(goal)
    most = MOST_OF_ALPHA * alpha
    fallback = TRIVIAL * alpha
    if search.certified < 1:
        fallback = curve.coverage(search.certified) - goal
    if not search.failed:
        wanted = _fresh(search, stage, sigma=sigma, doubt=doubt, fallback=fallback)
        q = curve.threshold(goal + min(wanted, most))
    else:
        lowest = curve.coverage(search.floor) - goal
        excess = np.linspace(min(lowest, most), most, _CANDIDATES)
        near = lowest + stage.unit * _NEAR
        excess = np.unique(np.append(excess, near[near < most]))
        q = curve.threshold(goal + excess)
        noise = sigma / math.sqrt(max(stage.answers + stage.rest, 1))
        critical = np.array([_pooled(search, float(at), noise) for at in q])
        cost = _costs(excess, critical, stage, sigma=sigma, doubt=doubt, fallback=fallback)
        best = int(cost.argmin())
        q = q[best]
        if excess[best] - lowest <= (stage.unit * STAY if stage.rest else 0.0):
            q = search.floor
    if search.certified >= 1 and not stage.among_many:
        # The curve may have misled all stages so far, so answers have a say of their own.
        sure, left = _sure(search, stage, sigma=sigma), stage.rest * (stage.unit / sigma) ** 2
        if sure < alpha / 2 and left < LATE:
            q = max(q, answers.seen_above(goal + sure) or TOP)
        elif sure >= alpha / 2 and (left < LATE_FEW or _scarce(search, stage, sigma) > most):
            q = max(q, TOP)
    return float(q) if q < search.certified else None


def _at_once(search: Searching, noise: float, *, last: bool = False) -> float:
    """The excess of the count with which a stage of this noise passes at once, every test of it."""
    needed = (
        above - float(ndtri(one.delta * (1.0 if last else one.early))) * noise
        for above, one in search.tests
    )
    return max(needed)


def _pooled(search: Searching, threshold: float, noise: float) -> float:
    """The excess with which all answers to come, at this noise, pass a threshold in every test."""
    needed = (
        above - float(ndtri(min(max(one.level(threshold), 1e-300), 1 - 1e-12))) * noise
        for above, one in search.tests
        if threshold < one.certified
    )
    return max(needed, default=-math.inf)


def _sure(search: Searching, stage: Ahead, *, sigma: float) -> float:
    """The excess at which a stage passes at once nearly always."""
    noise = sigma / math.sqrt(max(stage.answers, 1))
    return 2 * noise + _at_once(search, noise)


def _scarce(search: Searching, stage: Ahead, sigma: float) -> float:
    """The excess at which all answers to come together pass nearly always, near the top."""
    noise = sigma / math.sqrt(max(stage.answers + stage.rest, 1))
    return 2 * noise + _pooled(search, TOP, noise)


def _fresh(
    search: Searching, stage: Ahead, *, sigma: float, doubt: float, fallback: float
) -> float:
    """The excess to ask for at full level: likely to pass at once, well below what is certified."""
    noise = sigma / math.sqrt(max(stage.answers, 1))
    sure = SURE_AMONG_MANY if stage.among_many else SURE
    sure = sure if stage.rest else SURE_LAST
    likely = _at_once(search, noise, last=not stage.rest) + sure * math.hypot(noise, doubt)
    if search.certified >= 1:
        return likely
    return min(GO_DOWN * (fallback - stage.unit), likely)


def _costs(
    excess: Floats, critical: Floats, stage: Ahead, *, sigma: float, doubt: float, fallback: float
) -> Floats:
    """What asking all answers to come at these excesses is expected to cost.

    They pass where they show more than the critical excess.
    """
    noise = sigma / math.sqrt(max(stage.answers + stage.rest, 1))
    if stage.rest:
        doubt, fallback = doubt / 2, min(fallback, LATER * sigma / math.sqrt(stage.rest))
    passes = ndtr((excess - critical) / math.hypot(noise, doubt))
    return np.asarray(passes * excess + (1 - passes) * np.maximum(fallback, excess))
