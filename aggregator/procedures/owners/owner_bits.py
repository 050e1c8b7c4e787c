"""Bits for each owner or group: one round, after which the answers of each part are tested.

All are asked about the same rungs, so that the answers of each part can walk down on their own.
"""

from dataclasses import replace

from confide.aggregator.procedures.bits.asked import Asked
from confide.aggregator.procedures.bits.one_shot import REPEATS, ladder_below_1, walk
from confide.aggregator.procedures.ladder import Ladder
from confide.aggregator.procedures.owners.owner_parts import Found, Wanted, divided
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitProcedure, BitQuery, BitTally
from confide.protocol.methods.partition import Division, by_owner


def per_part(
    *,
    variant: str,
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
    """Test the rungs on the answers of each part, as `one_shot` does on those of all."""
    asked = Asked(
        variant=variant, channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt
    )
    rungs_at = ladder_below_1(ladder)
    tally = yield BitQuery(channel, 0.0, 1.0, tuple(rungs_at.tolist()) * REPEATS, division=division)

    def test(own: BitTally, level: float) -> Found:
        rungs = walk(replace(asked, delta=level), own, rungs_at)
        threshold = min([1.0, *(rung.threshold for rung in rungs if rung.passed)])
        return Found(sum(own.answers), threshold, rungs)

    pooled = asked.finish(arrived=sum(tally.answers), rungs=(), threshold=1.0, reason=None)
    wanted = Wanted(variant=variant, delta=delta, joint=joint, floor=part_floor, division=division)
    return divided(tally, pooled, wanted, size=lambda own: sum(own.answers), test=test)
