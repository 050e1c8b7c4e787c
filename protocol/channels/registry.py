"""The label channels by name, and the choice among them.

The single bit is not a label channel and is not registered.
"""

from typing import TypeVar

from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.channels.subset_selection import SubsetSelection
from confide.protocol.channels.unary_encoding import UnaryEncoding
from confide.protocol.errors import BadInput

AnyLabelChannel = TypeVar("AnyLabelChannel", bound=LabelChannel)

AUTO = "auto"
# If variances are nearly equal, the first in this order is chosen.
BUILT_IN: tuple[type[LabelChannel], ...] = (KaryRR, SubsetSelection, UnaryEncoding)
LABEL_CHANNELS: dict[str, type[LabelChannel]] = {channel.name: channel for channel in BUILT_IN}


def register(channel: type[AnyLabelChannel]) -> type[AnyLabelChannel]:
    """Register a label channel by its name, so that plans may ask for it; a class decorator.

    The class is called with the keywords `k` and `epsilon`.
    """
    if channel.name == AUTO or channel.name in LABEL_CHANNELS:
        raise BadInput(f"channel name {channel.name!r} is taken; it must be a new one")
    LABEL_CHANNELS[channel.name] = channel
    return channel


def label_channels(*, uniform_noise: bool = False) -> dict[str, type[LabelChannel]]:
    """Return all label channels, or only those with uniform noise, in order of registration."""
    return {
        name: channel
        for name, channel in LABEL_CHANNELS.items()
        if channel.uniform_noise or not uniform_noise
    }


def auto(
    *, k: int, epsilon: float, uniform_noise: bool = False, expected_size: float = 2.0
) -> LabelChannel:
    """Choose the label channel of least variance for sets of the expected size.

    Of channels within 1 % of the least variance, the one registered first is taken.
    """
    size = min(max(expected_size, 1.0), float(k))
    choice = label_channels(uniform_noise=uniform_noise)
    made = [make(k=k, epsilon=epsilon) for make in choice.values()]
    least = min(channel.variance(size) for channel in made)
    return next(channel for channel in made if channel.variance(size) <= 1.01 * least)
