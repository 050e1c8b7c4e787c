"""Bits for each owner: one round, after which each owner's answers are tested.

All owners are asked about the same rungs, so that each one's answers can walk down on their own.
"""

from dataclasses import replace

from confide.aggregator.procedures.bits.asked import Asked
from confide.aggregator.procedures.bits.one_shot import REPEATS, ladder_below_1, walk
from confide.aggregator.procedures.ladder import Ladder
from confide.aggregator.procedures.owners.owner_parts import Found, Wanted, divided
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitProcedure, BitQuery
from confide.protocol.methods.owner_terms import PER_OWNER
from confide.protocol.methods.partition import Division, by_owner
from confide.protocol.methods.parts import BitTally


def per_owner(
    *,
    channel: Bit,
    alpha: float,
    delta: float,
    n: int,
    max_corrupt: int = 0,
    ladder: Ladder | None = None,
    joint: bool = False,
    part_floor: int = 1,
    division: Division = by_owner,
) -> BitProcedure:
    """Test the rungs on the answers of each owner, as `one_shot` does on those of all."""
    asked = Asked(
        variant=PER_OWNER, channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt
    )
    rungs_at = ladder_below_1(ladder)
    tally = yield BitQuery(channel, 0.0, 1.0, tuple(rungs_at.tolist()) * REPEATS, division=division)

    def test(own: BitTally, level: float) -> Found:
        rungs = walk(replace(asked, delta=level), own, rungs_at)
        threshold = min([1.0, *(rung.threshold for rung in rungs if rung.passed)])
        return Found(sum(own.answers), threshold, rungs)

    pooled = asked.finish(arrived=sum(tally.answers), rungs=(), threshold=1.0, reason=None)
    wanted = Wanted(variant=PER_OWNER, delta=delta, joint=joint, floor=part_floor)
    return divided(tally, pooled, wanted, size=lambda own: sum(own.answers), test=test)
