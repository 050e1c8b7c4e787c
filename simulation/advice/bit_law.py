"""The law of the threshold that certified bits publish, for known records.

It is that of `confide.aggregator.procedures.bits.certified` in the normal limit: the counts of ones
are normal, the fits are those of `bit_fits`, the tests those of `bit_levels`, and everything else
is the procedure's own rules (`bit_search.place`, `certify.Search`), for many campaigns at once.
The cost does not depend on the number of records. Normal numbers come from a fixed seed, so that
the law changes smoothly with epsilon and n, and the same question has the same answer.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri

from confide.aggregator.procedures import bit_search
from confide.aggregator.procedures.bits import (
    RESERVE,
    SEARCH_SHARES,
    SEARCH_THRESHOLDS,
    STAGE_SHARES,
)
from confide.aggregator.procedures.certify import Search, null_rate, tail
from confide.aggregator.procedures.ladder import LOGIT_REACH
from confide.protocol.channels.bit import Bit
from confide.simulation.advice.bit_fits import END, Fits
from confide.simulation.advice.bit_levels import decided
from confide.simulation.advice.curves import SizeCurve

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

CAMPAIGNS = 400
_SEED = 7
_GRID = np.linspace(-END, END, 301)


@dataclass(frozen=True)
class BitCase:
    """A campaign of bits whose law is asked for."""

    curve: SizeCurve
    n: int
    channel: Bit
    alpha: float
    delta: float

    @property
    def null(self) -> float:
        """The rate of ones at coverage 1 - alpha."""
        return null_rate(self.channel, self.alpha)

    @property
    def sigma(self) -> float:
        """The standard deviation of a debiased bit at the target."""
        return math.sqrt(self.null * (1 - self.null)) / float(self.channel.hit - self.channel.spill)

    def hopeless(self, answers: int) -> bool:
        """Whether so many answers certify nothing even if all of them are ones."""
        return answers < 1 or tail(answers, answers, self.null) > self.delta

    def ones(self, u: Floats, answers: float, rng: np.random.Generator) -> Floats:
        """The numbers of ones that campaigns see at these logits."""
        spill, scale = float(self.channel.spill), float(self.channel.hit - self.channel.spill)
        rate = spill + scale * self.curve.coverage_at(u)
        drawn = answers * rate + np.sqrt(answers * rate * (1 - rate)) * rng.normal(size=u.shape)
        return np.clip(np.rint(drawn), 0, answers)

    def fits(self, aim: float, campaigns: int) -> Fits:
        """Fits that start from the true curve."""
        low, centre, high = self.curve.threshold(1 - self.alpha * np.array([1.5, 1.0, 0.5]))
        ends = logit(np.clip([low, centre, high], 1e-12, 1 - 1e-12))
        rise = logit(1 - 0.5 * self.alpha) - logit(1 - 1.5 * self.alpha)
        slope = float(np.clip(rise / max(ends[2] - ends[0], 1e-3), 0.05, 50.0))
        start = np.full(campaigns, ends[1])
        return Fits(self.channel, aim, start, np.full(campaigns, math.log(slope)))


def certified_law(asked: BitCase, *, campaigns: int = CAMPAIGNS) -> Floats:
    """Thresholds of as many campaigns; 1 where nothing is certified."""
    sizes = [int(asked.n * share) for share in STAGE_SHARES]
    if asked.hopeless(sum(sizes)) or min(sizes) < 1:
        return np.ones(campaigns)
    rng = np.random.default_rng(_SEED)
    aim = bit_search.aim_for(asked.null, asked.channel, alpha=asked.alpha, answers=sum(sizes))
    fits = asked.fits(aim, campaigns)
    _narrowed(asked, fits, rng)
    state = _Stages(asked, campaigns)
    for i, size in enumerate(sizes):
        rest = sum(sizes[i + 1 :])
        u = state.places(fits, size, rest)
        ones = asked.ones(u[:, None], size, rng)
        fits.add(u[:, None], size, ones)
        state.test(u, ones[:, 0], n=size, rest=rest)
        if rest:
            fits.climb(passes=2, steps=3)
    return np.where(np.isinf(state.certified), 1.0, expit(state.certified))


def _narrowed(asked: BitCase, fits: Fits, rng: np.random.Generator) -> None:
    """The search rounds (`bit_search.narrow`): thresholds across a window that answers narrow."""
    count = len(fits.centre)
    low, high = np.full(count, -LOGIT_REACH), np.full(count, LOGIT_REACH)
    steps = np.linspace(0, 1, SEARCH_THRESHOLDS)
    for share in SEARCH_SHARES:
        u = low[:, None] + (high - low)[:, None] * steps
        answers = max(1, int(asked.n * share / SEARCH_THRESHOLDS))
        fits.add(u, answers, asked.ones(u, answers, rng))
        fits.climb(passes=3, steps=4)
        grid = np.broadcast_to(_GRID, (count, len(_GRID)))
        coverage, error = fits.predict(grid)
        near = (coverage + 2 * error >= fits.target) & (coverage - 2 * error <= fits.target)
        # Between two points of the grid only the centre is near.
        first = np.minimum(np.where(near, grid, END).min(axis=1), fits.centre)
        last = np.maximum(np.where(near, grid, -END).max(axis=1), fits.centre)
        margin = 0.1 * (last - first) + 0.3 / fits.slope
        low, high = np.maximum(first - margin, -END), np.minimum(last + margin, END)


class _Stages:
    """What `certify.Search` holds, for every campaign; thresholds are logits."""

    def __init__(self, asked: BitCase, count: int) -> None:
        self._asked, self._reserve = asked, RESERVE * asked.delta
        self.certified, self._floor = np.full(count, np.inf), np.full(count, -np.inf)
        self._whole = np.full(count, asked.delta - self._reserve)
        self._level = self._whole
        self._failed, self._risen, self._second, self._finished = (
            np.zeros(count, dtype=np.bool_) for _ in range(4)
        )

    def _early(self, u: Floats) -> Floats:
        share = np.where(np.isinf(self.certified), Search.EARLY_FIRST, Search.EARLY)
        return np.where(self._risen | (self._failed & (u > self._floor)), 0.0, share)

    def places(self, fits: Fits, size: int, rest: int) -> Floats:
        """The logit that every campaign asks next; those that ask none are finished."""
        asked, top = self._asked, np.isinf(self.certified)
        held = fits.predict(np.where(top, 0.0, self.certified))[0] - (1 - asked.alpha)
        fallback = np.where(top, bit_search.TRIVIAL * asked.alpha, held)
        doubt = fits.predict(fits.at(1 - asked.alpha))[1]
        fresh = self._fresh(size, rest, doubt=doubt, fallback=fallback)
        risen = self._rise(size, rest, doubt=doubt, fallback=fallback)
        most = bit_search.MOST_OF_ALPHA * asked.alpha
        wanted = np.minimum(np.where(self._failed, risen, fresh), most)
        lowest = fits.predict(np.where(self._failed, self._floor, 0.0))[0] - (1 - asked.alpha)
        slack = asked.sigma / math.sqrt(asked.n) * bit_search.STAY if rest else 0.0
        u = np.maximum(fits.at(1 - asked.alpha + wanted), self._floor)
        u = np.where(self._failed & (lowest >= wanted - slack), self._floor, u)
        if not rest:
            seen = fits.seen_above(1 - asked.alpha + wanted / 2)
            u = np.where(top & self._second, np.maximum(u, seen), u)
        u = np.where(top, np.minimum(u, END), u)
        self._finished = self._finished | (u >= self.certified)
        return np.where(self._finished, fits.centre, u)

    def _fresh(self, size: int, rest: int, *, doubt: Floats, fallback: Floats) -> Floats:
        """`bit_search._fresh` for every campaign."""
        noise = self._asked.sigma / math.sqrt(size)
        share = self._early(np.full(len(doubt), -np.inf)) if rest else np.ones(len(doubt))
        sure = bit_search.SURE if rest else bit_search.SURE_LAST
        # A campaign that has risen is not fresh, and has no share.
        level = np.where(share > 0, self._level * share, 0.5)
        likely = -ndtri(np.clip(level, 1e-300, 0.5)) * noise + sure * np.hypot(noise, doubt)
        unit = self._asked.sigma / math.sqrt(self._asked.n)
        down = np.minimum(bit_search.GO_DOWN * (fallback - unit), likely)
        return np.where(np.isinf(self.certified), likely, down)

    def _rise(self, size: int, rest: int, *, doubt: Floats, fallback: Floats) -> Floats:
        """`bit_search._risen` for every campaign."""
        alpha, sigma = self._asked.alpha, self._asked.sigma
        excess = np.linspace(-alpha, alpha * 0.999, 120)
        noise = sigma / math.sqrt(size + rest)
        needed = -ndtri(np.clip(self._level, 1e-300, 1 - 1e-12)) * noise
        if rest:
            doubt = doubt / 2
            fallback = np.minimum(fallback, bit_search.LATER * sigma / math.sqrt(rest))
        passes = ndtr((excess - needed[:, None]) / np.hypot(noise, doubt)[:, None])
        cost = passes * excess + (1 - passes) * np.maximum(fallback[:, None], excess)
        return np.asarray(excess[cost.argmin(axis=1)])

    def test(self, u: Floats, ones: Floats, *, n: int, rest: int) -> None:
        """`certify.Search.test` for every campaign that asked."""
        null, active = self._asked.null, ~self._finished
        # Half a one for counts being whole.
        shown = (ones - 0.5 - n * null) / math.sqrt(n * null * (1 - null))
        early = self._early(u)
        passes, after = decided(shown, levels=self._level, early=early, n=n, rest=rest)
        self._risen = self._risen | (active & self._failed & (u > self._floor))
        passed, failed = active & passes, active & ~passes
        self.certified = np.where(passed, u, self.certified)
        self._level = np.where(passed, self._whole, np.where(failed, after, self._level))
        self._failed = np.where(passed, False, self._failed | failed)
        self._floor = np.where(passed, -np.inf, np.where(failed, u, self._floor))
        ended = (passed & self._risen) | (failed & (self._level <= 0))
        self._finished = self._finished | (ended & self._second)
        self._begin_again(active & ~self._second & (ended | (self._level < self._reserve)))

    def _begin_again(self, again: Flags) -> None:
        """The second search, with the reserve, of the campaigns whose first has ended."""
        self._second = self._second | again
        self._whole = np.where(again, self._reserve, self._whole)
        self._level = np.where(again, self._reserve, self._level)
        self._failed, self._risen = self._failed & ~again, self._risen & ~again
        self._floor = np.where(again, -np.inf, self._floor)
