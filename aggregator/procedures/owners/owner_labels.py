"""Labels for every owner or group, or for each: the ladder is walked down once on each part."""

from typing import Any

from confide.aggregator.procedures.labels.betting import betting_evidence
from confide.aggregator.procedures.labels.payoffs import coverage_payoffs
from confide.aggregator.procedures.ladder import Ladder, check_ladder, public_ladder
from confide.aggregator.procedures.ladder_walk import check_promise, walk_down
from confide.aggregator.procedures.owners.owner_parts import Found, Wanted, divided
from confide.protocol.certificate import (
    DROPOUTS,
    IID,
    LIARS_IN_ORDER,
    MIXTURE,
    PAC,
    LocalCertificate,
)
from confide.protocol.channels.base import LabelChannel
from confide.protocol.methods.labels.in_clear import InClear
from confide.protocol.methods.labels.query import LabelProcedure, LabelQuery, LabelTally
from confide.protocol.methods.partition import Division, by_owner


def by_parts(
    *,
    variant: str,
    channel: LabelChannel,
    alpha: float,
    delta: float,
    max_corrupt: int = 0,
    ladder: Ladder | None = None,
    largest_set: int = 0,
    joint: bool = False,
    part_floor: int = 1,
    shown: InClear | None = None,
    division: Division = by_owner,
) -> LabelProcedure:
    """Test every rung on the reports of each part, at delta for each of them.

    The order of a part's reports is that of all, and its blocks are its own. With `largest_set`,
    larger sets count as that many best labels of theirs.
    """
    check_promise(alpha, delta, max_corrupt)
    rungs_at = public_ladder() if ladder is None else check_ladder(ladder)
    tally = yield LabelQuery(channel, shown=shown, division=division)

    def test(own: LabelTally, level: float) -> Found:
        thresholds, payoffs = coverage_payoffs(
            own, channel, ladder=rungs_at, alpha=alpha, largest=largest_set
        )
        evidence = betting_evidence(payoffs, delta=level, max_corrupt=max_corrupt)
        threshold, rungs = walk_down(thresholds, *evidence)
        return Found(len(own.reports), threshold, rungs[-2:])

    stated: dict[str, Any] = {"alpha": alpha, "delta": delta, "max_corrupt": max_corrupt}
    pooled = LocalCertificate(
        method="labels",
        variant=variant,
        kind=PAC,
        threshold=1.0,
        level=1 - alpha,
        n=len(tally.reports),
        channel=channel.name,
        epsilon=channel.epsilon,
        assumptions=(IID, MIXTURE, DROPOUTS, *((LIARS_IN_ORDER,) if max_corrupt else ())),
        **stated,
    )
    wanted = Wanted(variant=variant, delta=delta, joint=joint, floor=part_floor, division=division)
    return divided(tally, pooled, wanted, size=lambda own: len(own.reports), test=test)
