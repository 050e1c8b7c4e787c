"""The thresholds that a campaign has asked about, and what the answers say of each.

Together they bracket the threshold at which coverage crosses the level.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from confide.aggregator.binomial import above, below
from confide.aggregator.storage.stored_campaign import Campaign, Round
from confide.protocol.methods.base import Query
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.central import CountQuery
from confide.protocol.plan import read_query

# The probability that a bracket does not hold the crossing: half of it for each end.
DOUBT = 0.05


@dataclass(frozen=True)
class Point:
    """A threshold that was asked, and an unbiased estimate of the share of records below it.

    The estimate has its standard error.

    `above` is how likely so many ones or more would be if coverage were exactly the level asked
    for, `below` so many or fewer. All four are None until the round was counted with an answer to
    it.
    """

    round: int
    threshold: float
    answers: int
    coverage: float | None = None
    error: float | None = None
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True)
class Bracket:
    """The thresholds between which coverage crosses the level, by the answers so far."""

    low: float
    high: float


def bracket(points: Sequence[Point]) -> Bracket:
    """The highest threshold found below the level under the lowest found above it.

    It is wrong with probability at most `DOUBT`.

    Every record answers once, so each test stands for itself whatever was asked before. Round j =
    0, 1, ... has a share 1/((j + 1)(j + 2)) of the doubt, which its thresholds divide: what was
    sure stays so, and brackets only narrow.
    """
    asked = Counter(point.round for point in points)

    def sure(point: Point, chance: float | None) -> bool:
        share = DOUBT / 2 / ((point.round + 1) * (point.round + 2)) / asked[point.round]
        return chance is not None and chance <= share

    high = min((point.threshold for point in points if sure(point, point.above)), default=1.0)
    return Bracket(
        max(
            (
                point.threshold
                for point in points
                if sure(point, point.below) and point.threshold < high
            ),
            default=0.0,
        ),
        high,
    )


def points(campaign: Campaign, rounds: Sequence[Round], asked: Sequence[bytes]) -> list[Point]:
    """Every threshold asked so far, in the order of rounds, whose queries are given too."""
    found: list[Point] = []
    for one, data in zip(rounds, asked, strict=True):
        query, _ = read_query(data, plan=campaign.plan, plan_digest=campaign.digest)
        tally = None if one.tally is None else json.loads(one.tally)
        level = 1 - campaign.plan.alpha
        if type(query) in POINTS:
            found += POINTS[type(query)](one.number, query, tally, level=level)
    return found


def _bit_points(number: int, query: BitQuery, tally: Any, *, level: float) -> list[Point]:
    """A threshold may stand in a query several times; its answers are pooled."""
    answers, ones = Counter(dict.fromkeys(query.thresholds, 0)), Counter[float]()
    for i, threshold in enumerate(query.thresholds if tally else ()):
        answers[threshold] += tally["answers"][i]
        ones[threshold] += tally["ones"][i]
    hit, spill = float(query.channel.hit), float(query.channel.spill)
    q = [threshold for threshold, n in answers.items() if n]
    n, k = (
        np.array([answers[threshold] for threshold in q]),
        np.array([ones[threshold] for threshold in q]),
    )
    # Never 0, even if all answers are equal.
    rate = (k + 1) / (n + 2)
    null = spill + (hit - spill) * level
    columns = (
        (k / n - spill) / (hit - spill),
        np.sqrt(rate * (1 - rate) / n) / (hit - spill),
        above(k - 1, n, null),
        below(k + 1, n, null),
    )
    known = {
        threshold: row
        for threshold, *row in zip(q, *(column.tolist() for column in columns), strict=True)
    }
    return [
        Point(number, threshold, count, *known.get(threshold, ()))
        for threshold, count in answers.items()
    ]


def _count_points(number: int, query: CountQuery, tally: Any, *, level: float) -> list[Point]:
    """Noised counts: normal, with the noise of every owner and the chance of which records there
    are."""
    pairs = list(tally["owners"].values()) if tally else []
    n = sum(pair[0] for pair in pairs)
    if not n:
        return [Point(number, query.threshold, 0)]
    share, error = (
        sum(pair[1] for pair in pairs) / n,
        math.sqrt(query.variance * len(pairs) + n * level * (1 - level)) / n,
    )
    z = (share - level) / error
    above, below = float(ndtr(-z)), float(ndtr(z))
    return [
        Point(number, query.threshold, n, coverage=share, error=error, above=above, below=below)
    ]


# Queries about thresholds whose answers can be drawn, and how.
POINTS: dict[type[Query], Callable[..., list[Point]]] = {
    BitQuery: _bit_points,
    CountQuery: _count_points,
}
