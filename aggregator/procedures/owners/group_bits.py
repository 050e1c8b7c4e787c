"""Bits for each group: every group has its own search, in rounds that all groups share.

A record's group is public, so a round asks each group thresholds of its own: two rounds search, and
three stages certify, as if each group were a campaign. Groups are disjoint, so each is tested at
its own level.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from confide.aggregator.procedures.bits.asked import Asked
from confide.aggregator.procedures.bits.search import narrow, place
from confide.aggregator.procedures.ladder import LOGIT_REACH
from confide.aggregator.procedures.owners.every_owner_bits import (
    SEARCH_SHARES,
    SEARCH_THRESHOLDS,
    STAGE_SHARES,
    PartSearch,
    part_search,
    stratum,
    take,
)
from confide.aggregator.procedures.owners.owner_parts import Wanted, put_together
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitProcedure, BitQuery
from confide.protocol.methods.owner_terms import PER_GROUP
from confide.protocol.methods.partition import Division
from confide.protocol.methods.parts import BitTally

Stepped = Generator[BitQuery, BitTally, None]


def per_group(
    *,
    channel: Bit,
    alpha: float,
    delta: float,
    n: int,
    division: Division,
    max_corrupt: int = 0,
    joint: bool = False,
    part_floor: int = 1,
) -> BitProcedure:
    """Certify a threshold for each group by its own answers, at delta or at its share of it."""
    asked = Asked(
        variant=PER_GROUP, channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt
    )
    wanted = Wanted(
        variant=PER_GROUP, delta=delta, joint=joint, floor=part_floor, division=division
    )
    named = division.named(())
    tested = replace(wanted, delta=wanted.share(len(named)))
    groups = _Groups(replace(asked, delta=tested.delta), division)
    yield from groups.search()
    yield from groups.certify(floor=part_floor)
    parts = [
        stratum(name, one, tested) for (name, _), one in zip(named, groups.searches, strict=True)
    ]
    pooled = asked.finish(arrived=groups.arrived, rungs=(), threshold=1.0, reason=None)
    return put_together(pooled, wanted, parts)


@dataclass
class _Groups:
    """The searches of all groups, in the order of the plan."""

    asked: Asked
    division: Division

    def __post_init__(self) -> None:
        self._keys = [key for _, key in self.division.named(())]
        self.searches = [part_search(self.asked, ()) for _ in self._keys]
        self.arrived, self._start = 0, 0.0

    def _query(self, share: float, thresholds: Sequence[tuple[float, ...]]) -> BitQuery:
        """The query to the next share of the records, the same number of thresholds a group."""
        start, self._start = self._start, min(1.0, self._start + share)
        flat = tuple(q for row in thresholds for q in row)
        return BitQuery(
            self.asked.channel, start, self._start, flat, division=self.division, each=True
        )

    def _rows(self, tally: BitTally) -> list[BitTally]:
        """What each group answered to its own thresholds."""
        self.arrived += tally.size
        count, found = len(tally.answers) // len(self._keys), []
        for number, key in enumerate(self._keys):
            own, row = tally.of(key), slice(number * count, (number + 1) * count)
            found.append(BitTally(own.answers[row], own.ones[row]))
        return found

    def search(self) -> Stepped:
        """Ask each group twelve thresholds twice, across a window that its answers narrow."""
        windows = [(-LOGIT_REACH, LOGIT_REACH) for _ in self._keys]
        seen: list[list[tuple[tuple[float, ...], BitTally]]] = [[] for _ in self._keys]
        for share in SEARCH_SHARES:
            rows = [
                tuple(expit(np.linspace(*window, SEARCH_THRESHOLDS)).tolist()) for window in windows
            ]
            found = self._rows((yield self._query(share, rows)))
            for number, own in enumerate(found):
                seen[number].append((rows[number], own))
                one = self._begun(seen[number])
                self.searches[number] = one
                windows[number] = narrow(one.answers.curve(), one.answers.aim, windows[number])

    def _begun(self, seen: list[tuple[tuple[float, ...], BitTally]]) -> PartSearch:
        """The search of a group after these rounds, whose shares say how many answers follow."""
        one = part_search(self.asked, [own.size for _, own in seen], share=self._start)
        for thresholds, own in seen:
            one.answers.add(thresholds, own)
        return one

    def certify(self, *, floor: int) -> Stepped:
        """Test, in each stage, the threshold that each group's own answers suggest."""
        for stage, share in enumerate(STAGE_SHARES):
            wanted = [self._next(one, stage, floor=floor) for one in self.searches]
            if all(q is None for q in wanted):
                return
            last = stage + 1 == len(STAGE_SHARES)
            rows = [
                (one.search.certified if q is None else q,)
                for one, q in zip(self.searches, wanted, strict=True)
            ]
            found = self._rows((yield self._query(1.0 if last else share, rows)))
            for one, q, own in zip(self.searches, wanted, found, strict=True):
                if q is None:
                    one.reports.append(own.size)
                else:
                    take(one, own, threshold=q, stage=stage)

    def _next(self, one: PartSearch, stage: int, *, floor: int) -> float | None:
        """The threshold that a group tests in a stage; None if no test would help it.

        A group that left out a stage tests no other one: it could have failed what it left out.
        """
        skipped = len(one.rungs) < stage
        if one.planned < floor or one.left or skipped or one.search.finished:
            return None
        channel, m0 = self.asked.channel, self.asked.m0
        spread = math.sqrt(m0 * (1 - m0)) / float(channel.hit - channel.spill)
        ahead = one.ahead(stage, spread)
        return place(one.answers, one.search, ahead, channel=channel, alpha=self.asked.alpha)
