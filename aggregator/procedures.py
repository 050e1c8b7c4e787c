"""The procedure that a method and variant name."""

from aggregator import bits, labels
from protocol.channel import Channel, LabelChannel
from protocol.channels import Bit
from protocol.errors import BadInput
from protocol.queries import BitProcedure, LabelProcedure


def make_procedure(
    *, variant: str, channel: Channel, alpha: float, delta: float, n: int, max_corrupt: int
) -> BitProcedure | LabelProcedure:
    """A calibration procedure over bits or labels, as the channel says; n is the number of records expected."""
    star = variant == "published-star"
    if isinstance(channel, Bit):
        if variant == "certified":
            return bits.certified(channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt)
        if variant == "one-shot":
            return bits.one_shot(channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt)
        return bits.published(channel=channel, alpha=alpha, delta=delta, n=n, star=star, max_corrupt=max_corrupt)
    if not isinstance(channel, LabelChannel):
        raise BadInput(f"channel is {channel.name}; accepted are bits and label channels")
    if variant == "certified":
        return labels.certified(channel=channel, alpha=alpha, delta=delta, max_corrupt=max_corrupt)
    return labels.published(channel=channel, alpha=alpha, delta=delta, star=star, max_corrupt=max_corrupt)
