"""The procedure that a method and variant name."""

from confide.aggregator.procedures import bits, central, labels
from confide.protocol.channels.base import Channel, LabelChannel
from confide.protocol.channels.kinds import Bit
from confide.protocol.errors import BadInput
from confide.protocol.methods.queries import (
    BitProcedure,
    CountProcedure,
    HistogramProcedure,
    LabelProcedure,
)
from confide.protocol.plan import Plan

Procedure = BitProcedure | LabelProcedure | HistogramProcedure | CountProcedure


def plan_procedure(plan: Plan, draw: central.Draw) -> Procedure:
    """The procedure of a plan; `draw` makes a trusted release, and keeps it."""
    if plan.central:
        return (
            central.trusted(plan, draw) if plan.variant == "trusted" else central.owner_noised(plan)
        )
    return make_procedure(
        variant=plan.variant,
        channel=plan.make_channel(),
        alpha=plan.alpha,
        delta=plan.delta,
        n=plan.expected_records,
        max_corrupt=plan.max_corrupt,
    )


def make_procedure(
    *, variant: str, channel: Channel, alpha: float, delta: float, n: int, max_corrupt: int
) -> BitProcedure | LabelProcedure:
    """A calibration procedure over bits or labels, as the channel says; n is the number of records
    expected."""
    star = variant == "published-star"
    if isinstance(channel, Bit):
        if variant == "certified":
            return bits.certified(
                channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt
            )
        if variant == "one-shot":
            return bits.one_shot(
                channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt
            )
        return bits.published(
            channel=channel, alpha=alpha, delta=delta, n=n, star=star, max_corrupt=max_corrupt
        )
    if not isinstance(channel, LabelChannel):
        raise BadInput(f"channel is {channel.name}; accepted are bits and label channels")
    if variant == "certified":
        return labels.certified(channel=channel, alpha=alpha, delta=delta, max_corrupt=max_corrupt)
    return labels.published(
        channel=channel, alpha=alpha, delta=delta, star=star, max_corrupt=max_corrupt
    )
