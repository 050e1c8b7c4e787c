"""Bits for every owner or group: all are asked about one threshold at a time, and each tests it.

Two rounds search, three certify. A stage asks everybody about the threshold of the owner that needs
the highest. An owner tests it on its own answers if it has certified no threshold as low. That test
holds at level delta whoever chose the threshold, because a search may be asked about any threshold
below the one it certified. Owners with easy records pass at an early stage, and later stages ask
what the others need.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit

from confide.aggregator.procedures.bits.asked import Asked
from confide.aggregator.procedures.bits.search import Ahead, Answers, aim_for, narrow, place
from confide.aggregator.procedures.certify import Search
from confide.aggregator.procedures.ladder import LOGIT_REACH
from confide.aggregator.procedures.owners.owner_parts import Wanted, put_together
from confide.protocol.certificate import BitRung, Stratum
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitProcedure, BitQuery
from confide.protocol.methods.partition import Division, by_owner
from confide.protocol.methods.parts import BitTally

# Shares of the records: of the two rounds that search, and of the stages. An owner has few answers,
# and all owners must pass, so there are fewer stages than where all answers count together.
SEARCH_SHARES = (0.05, 0.1)
STAGE_SHARES = (0.15, 0.3, 0.4)
SEARCH_THRESHOLDS = 12


@dataclass
class PartSearch:
    """An owner under test: its answers, its search, and the answers that its stages expect.

    `reports` are its answers by round.
    """

    answers: Answers
    search: Search
    planned: int
    reports: list[int]
    rungs: list[BitRung] = field(default_factory=list)
    left: bool = False

    def ahead(self, stage: int, spread: float = 0.0) -> Ahead:
        """Its answers of a stage; `spread` is the standard deviation of one, in coverage."""
        sizes = [int(self.planned * share) for share in STAGE_SHARES]
        unit = spread / math.sqrt(max(self.planned, 1))
        return Ahead(sizes[stage], sum(sizes[stage + 1 :]), unit, among_many=True)


def for_every_part(
    *,
    variant: str,
    channel: Bit,
    alpha: float,
    delta: float,
    n: int,
    max_corrupt: int = 0,
    part_floor: int = 1,
    division: Division = by_owner,
) -> BitProcedure:
    """Certify the threshold that the answers of every part certify; delta is not divided.

    How many answers a part will give is taken from the rounds of search, whose shares are known.
    One round whose reports are not kept apart ends it with no part, as if none kept any apart.
    """
    asked = Asked(
        variant=variant,
        channel=channel,
        alpha=alpha,
        delta=delta,
        n=n,
        max_corrupt=max_corrupt,
    )
    arrived, owners = yield from _searched(asked, division)
    wanted = Wanted(variant=variant, delta=delta, floor=part_floor, division=division)
    tested = {key: one for key, one in owners.items() if one.planned >= part_floor}
    start, nobody = sum(SEARCH_SHARES), [0] * len(SEARCH_SHARES)
    for i, share in enumerate(STAGE_SHARES):
        q = _highest(tested, i, asked)
        if q is None:
            break
        stop = start + share if i + 1 < len(STAGE_SHARES) else 1.0
        tally = yield BitQuery(channel, start, stop, (q,), division=division)
        start, arrived = stop, arrived + tally.answers[0]
        if tally.of_nobody:
            owners = {}
            break
        for key in tally.keys:
            owners.setdefault(key, part_search(asked, nobody))
        nobody = [*nobody, 0]
        for key, one in owners.items():
            take(one, tally.of(key), threshold=q, stage=i)
    parts = [
        stratum(name, owners.get(key) or part_search(asked, nobody), wanted)
        for name, key in division.named(owners)
    ]
    pooled = asked.finish(arrived=arrived, rungs=(), threshold=1.0, reason=None)
    return put_together(pooled, wanted, parts)


def part_search(
    asked: Asked, reports: Sequence[int], *, share: float = sum(SEARCH_SHARES)
) -> PartSearch:
    """The search of a part with these answers by round, from a share of its records."""
    planned = int(sum(reports) / share)
    aim = aim_for(asked.m0, asked.channel, alpha=asked.alpha, answers=max(planned, 1))
    return PartSearch(Answers(asked.channel, aim), asked.search(), planned, [*reports])


def _searched(
    asked: Asked, division: Division
) -> Generator[BitQuery, BitTally, tuple[int, dict[bytes, PartSearch]]]:
    """Ask twelve thresholds twice, across windows that hold what every owner may need.

    Returns how many answers arrived, and the owners.
    """
    window, start, arrived = (-LOGIT_REACH, LOGIT_REACH), 0.0, 0
    seen: list[tuple[tuple[float, ...], BitTally]] = []
    together = part_search(asked, [asked.n], share=1.0)
    owners: dict[bytes, PartSearch] = {}
    for share in SEARCH_SHARES:
        thresholds = tuple(expit(np.linspace(*window, SEARCH_THRESHOLDS)).tolist())
        tally = yield BitQuery(asked.channel, start, start + share, thresholds, division=division)
        seen.append((thresholds, tally))
        together.answers.add(thresholds, tally)
        start, arrived = start + share, arrived + sum(tally.answers)
        counts = {key: [one.of(key).size for _, one in seen] for key in _keys(seen)}
        owners = {key: part_search(asked, own, share=start) for key, own in counts.items()}
        for key, one in owners.items():
            for asked_at, found in seen:
                one.answers.add(asked_at, found.of(key))
        pooled = narrow(together.answers.curve(), together.answers.aim, window)
        ends = [narrow(one.answers.curve(), one.answers.aim, window)[1] for one in owners.values()]
        window = pooled[0], max([pooled[1], *ends])
    return arrived, owners


def _keys(seen: list[tuple[tuple[float, ...], BitTally]]) -> set[bytes]:
    """The parts that answered so far; none if reports of a round are not kept apart."""
    if any(tally.of_nobody for _, tally in seen):
        return set()
    return {key for _, tally in seen for key in tally.keys}


def _highest(tested: Mapping[bytes, PartSearch], stage: int, asked: Asked) -> float | None:
    """The threshold of the owner that needs the highest; None if no threshold would help.

    None would help once the owner whose certified threshold is the largest can test no lower one.
    """
    staying = [one for one in tested.values() if not one.left]
    if not staying:
        return None
    top, wanted = max(one.search.certified for one in staying), []
    gain = float(asked.channel.hit - asked.channel.spill)
    spread = math.sqrt(asked.m0 * (1 - asked.m0)) / gain
    for one in staying:
        q = None
        if not one.search.finished:
            q = place(
                one.answers,
                one.search,
                one.ahead(stage, spread),
                channel=asked.channel,
                alpha=asked.alpha,
            )
        if q is None and one.search.certified == top:
            return None
        wanted += [] if q is None else [q]
    return max(wanted)


def take(one: PartSearch, tally: BitTally, *, threshold: float, stage: int) -> None:
    """Give an owner its answers at a threshold, which it tests unless it has a lower one."""
    n, ones = tally.answers[0], tally.ones[0]
    one.reports.append(n)
    one.left |= n == 0
    one.answers.add((threshold,), tally)
    if not one.search.finished and threshold < one.search.certified and not one.left:
        one.rungs.append(one.search.test(threshold, n=n, ones=ones, rest=one.ahead(stage).rest))


def stratum(name: str, one: PartSearch, wanted: Wanted) -> Stratum:
    """What the answers of a part certify, or why nothing is claimed of it."""
    covered, arrived = one.planned >= wanted.floor and not one.left, sum(one.reports)
    reason = None
    if one.planned < wanted.floor:
        reason = (
            f"too few reports: about {one.planned}, the plan asks for {wanted.floor} of "
            f"{wanted.one_part}"
        )
    elif one.left:
        reason = "left: it answered none of the reports of a stage"
    elif one.search.certified >= 1:
        reason = f"no threshold below 1 passed on its {arrived} reports"
    return Stratum(
        name=name,
        threshold=one.search.certified if covered else 1.0,
        n=arrived,
        delta=wanted.delta,
        rungs=tuple(one.rungs) if covered else (),
        reason=reason,
        covered=covered,
        reports=tuple(one.reports),
    )
