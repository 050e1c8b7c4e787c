"""Every registered channel, over numbers of labels and epsilons."""

from confide.protocol.channels.base import Channel
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import LABEL_CHANNELS

KS = (2, 3, 10, 26, 100, 1000)
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
GRID = [(name, k, epsilon) for name in LABEL_CHANNELS for k in KS for epsilon in EPSILONS]
GRID += [("bit", 2, epsilon) for epsilon in EPSILONS]


def make(name: str, k: int, epsilon: float) -> Channel:
    return Bit(epsilon=epsilon) if name == "bit" else LABEL_CHANNELS[name](k=k, epsilon=epsilon)
