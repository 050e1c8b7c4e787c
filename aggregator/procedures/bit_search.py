"""Chooses the thresholds that a bits campaign asks next; no guarantee depends on this module."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri

from confide.aggregator.procedures.certify import Search
from confide.aggregator.procedures.curve import Curve, fit_curve
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitTally

Floats = NDArray[np.float64]

# How far above what a stage needs to pass at once its coverage should be, in standard errors; and
# for the last stage, which nothing follows.
SURE, SURE_LAST = 0.73, 1.38
# The next threshold below a certified one has this share of its excess, less a standard error.
GO_DOWN = 0.62
# After a failure a threshold this close (in standard errors) to the best one is asked again; and
# what failing once more costs, in standard errors of the answers left then.
STAY, LATER = 0.5, 6.0
# A trivial threshold exceeds the target by alpha, and counts as this many times that.
TRIVIAL = 2.0
# Coverage asked for exceeds the target by at most this share of alpha.
MOST_OF_ALPHA = 0.9


# Lies may cost a stage this share of alpha; what allows for more of them has fewer, larger stages.
MOST_OF_LIES = 0.4


def join_stages(shares: Sequence[float], *, lies: float) -> tuple[float, ...]:
    """Join stages, next to each other, until lies cost each at most MOST_OF_LIES of alpha.

    `lies` is the share of the records in a stage whose coverage all lies would shift by alpha.
    """
    joined = [0.0]
    for share in shares:
        if joined[-1] and joined[-1] * MOST_OF_LIES >= lies:
            joined.append(0.0)
        joined[-1] += share
    if len(joined) > 1 and joined[-1] * MOST_OF_LIES < lies:
        last = joined.pop()
        joined[-1] += last
    return tuple(joined)


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

    `lies` is by how much coverage must be higher for this stage to pass in spite of the lies that
    are allowed for, and `lies_pooled` the same for this stage and all after it together.
    """

    answers: int
    rest: int
    unit: float
    lies: float = 0.0
    lies_pooled: float = 0.0


def place(
    answers: Answers, search: Search, stage: Ahead, *, channel: Bit, alpha: float
) -> float | None:
    """The threshold to ask next, or None if none helps.

    The rules say by how much its coverage should exceed the target, in standard errors; the curve
    says where that is.
    """
    curve = answers.curve()
    grid = curve.grid()
    coverage, error = curve.predict(grid)
    excess = coverage - (1 - alpha)
    doubt = float(np.interp(0.0, excess, error))
    fallback = TRIVIAL * alpha
    if search.certified < 1:
        fallback = float(np.interp(logit(search.certified), grid, excess))
    sigma = _spread(search.null, channel)
    if search.failed:
        wanted = _risen(excess, search.level, stage, sigma=sigma, doubt=doubt, fallback=fallback)
    else:
        wanted = _fresh(search, stage, sigma=sigma, doubt=doubt, fallback=fallback)
    wanted = min(wanted, MOST_OF_ALPHA * alpha)
    q = expit(grid)
    if search.certified >= 1 and search.second and not stage.rest:
        # The last chance: the curve has misled both searches, so answers have a say of their own.
        last = answers.seen_above(1 - alpha + wanted / 2)
        if last > max(search.floor, float(q[np.searchsorted(excess, wanted) - 1])):
            return last
    if search.failed:
        lowest = float(np.interp(logit(search.floor), grid, excess))
        if lowest >= wanted - (stage.unit * STAY if stage.rest else 0.0):
            return search.floor
    allowed = q[(excess >= wanted) & (q >= search.floor) & (q < search.certified)]
    if allowed.size:
        return float(allowed[0])
    return float(q[-1]) if search.certified >= 1 else None


def _fresh(search: Search, stage: Ahead, *, sigma: float, doubt: float, fallback: float) -> float:
    """The excess to ask for at full level: likely to pass at once, well below what is certified."""
    noise = sigma / math.sqrt(max(stage.answers, 1))
    early = 1.0 if not stage.rest else search.early(0.0)
    sure = SURE if stage.rest else SURE_LAST
    likely = -float(ndtri(search.level * early)) * noise + sure * math.hypot(noise, doubt)
    if search.certified >= 1:
        return stage.lies + likely
    return stage.lies + min(GO_DOWN * (fallback - stage.lies - stage.unit), likely)


def _risen(
    excess: Floats, level: float, stage: Ahead, *, sigma: float, doubt: float, fallback: float
) -> float:
    """The excess at which asking all answers to come costs least, after a stage that failed."""
    noise = sigma / math.sqrt(max(stage.answers + stage.rest, 1))
    critical = -float(ndtri(min(max(level, 1e-300), 1 - 1e-12))) * noise + stage.lies_pooled
    if stage.rest:
        doubt, fallback = doubt / 2, min(fallback, LATER * sigma / math.sqrt(stage.rest))
    passes = ndtr((excess - critical) / math.hypot(noise, doubt))
    cost = passes * excess + (1 - passes) * np.maximum(fallback, excess)
    return float(excess[int(cost.argmin())])
