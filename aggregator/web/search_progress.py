"""The thresholds that a campaign has asked about, and what the answers say of each.

Together they bracket the threshold at which coverage crosses the level.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from confide.aggregator.campaigns.owner_record import Departure, absent
from confide.aggregator.storage import views
from confide.aggregator.storage.departures import left_since_first
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import Campaign, Round
from confide.protocol.methods.base import Query
from confide.protocol.methods.thresholds import Alarm, Evidence
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


Asked = tuple[Campaign, Sequence[Round], Sequence[bytes]]


def asked_of(store: Store, campaign: str) -> Asked:
    """A campaign with its rounds and their queries; a training has long ones, and none is read."""
    one = store.campaign(campaign)
    rounds = [] if one.plan.terms.trains else store.rounds(campaign)
    return one, rounds, [store.query(campaign, row.number) for row in rounds]


def points(campaign: Campaign, rounds: Sequence[Round], asked: Sequence[bytes]) -> list[Point]:
    """Every threshold asked so far, in the order of rounds, whose queries are given too."""
    level = 1 - campaign.plan.alpha
    return [
        _point(number, evidence, level)
        for number, query, tally in _tallies(campaign, rounds, asked)
        for evidence in query.evidence(tally)
    ]


def alarm(campaign: Campaign, rounds: Sequence[Round], asked: Sequence[bytes]) -> Alarm | None:
    """What the rounds that were counted say against the coverage that a monitor watches."""
    found = [tally for _, _, tally in _tallies(campaign, rounds, asked) if tally is not None]
    return campaign.plan.terms.alarm(found, alpha=campaign.plan.alpha)


def departure(store: Store, one: views.Overview) -> Departure | None:
    """Which owners have left a calibration by reports; None before a round, or if nobody knows."""
    if one.plan.shuffling is not None or not one.plan.terms.calibrates_by_reports:
        return None
    left = left_since_first(store.engine, one.id)
    if left is None:
        return None
    first = views.rounds(store.engine, one)[0]
    share = min(1.0, first.expected / one.plan.expected_records)
    return Departure(left, absent(first.reports, plan=one.plan, share=share))


def _tallies(
    campaign: Campaign, rounds: Sequence[Round], asked: Sequence[bytes]
) -> Iterator[tuple[int, Query, Any]]:
    """The number of every round, its query and, once it was counted, its tally."""
    for row, data in zip(rounds, asked, strict=True):
        query, _ = read_query(data, plan=campaign.plan, plan_digest=campaign.digest)
        kept = row.tally
        tally = None if kept is None else query.tally_from_json(json.loads(kept))
        yield row.number, query, tally


def _point(number: int, evidence: Evidence, level: float) -> Point:
    if not evidence.answers:
        return Point(number, evidence.threshold, 0)
    return Point(
        number,
        evidence.threshold,
        evidence.answers,
        coverage=evidence.coverage,
        error=evidence.error(level),
        above=evidence.above(level),
        below=evidence.below(level),
    )
