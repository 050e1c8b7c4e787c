"""`cnn`: convolutions with group normalisation for small images.

Group normalisation treats every record by itself; batch normalisation would mix records.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from confide.protocol.architectures.base import (
    MOST_UNITS,
    BuiltIn,
    Shapes,
    check_names,
    whole_numbers,
)
from confide.protocol.errors import BadInput

_KERNEL = 3
_POOL = 2
_GROUP = 4
_MOST_SIDE = 512
_MOST_CHANNELS = 2048
_MOST_BLOCKS = 6


@dataclass(frozen=True)
class CNN(BuiltIn):
    """Blocks of convolution, group normalisation, ReLU and pooling by 2, then a linear layer.

    `image` is (channels, height, width) of a record, whose features are its pixels in this order;
    `channels` are those of the blocks.
    """

    features: int
    outputs: int
    image: tuple[int, ...]
    channels: tuple[int, ...]

    name: ClassVar[str] = "cnn"

    def __post_init__(self) -> None:
        if math.prod(self.image) != self.features:
            raise BadInput(
                f"image is {self.image} and features are {self.features}; accepted is an image of "
                "as many numbers"
            )
        if min(self.image[1:]) < _POOL ** len(self.channels):
            raise BadInput(
                f"image is {self.image}, with {len(self.channels)} blocks that each halve it; "
                f"accepted is at least {_POOL ** len(self.channels)} in height and width"
            )
        units = self.features + sum(
            channels * height * width for channels, height, width in self._sides()
        )
        if units > MOST_UNITS:
            raise BadInput(f"the network has {units} units; accepted are at most {MOST_UNITS}")

    @classmethod
    def of(cls, arguments: Mapping[str, Any], *, features: int, outputs: int) -> Self:
        check_names(cls.name, arguments, ("channels", "image"))
        side = math.isqrt(features)
        return cls(
            features,
            outputs,
            image=whole_numbers(
                "image", arguments.get("image", [1, side, side]), most=_MOST_SIDE, count=range(3, 4)
            ),
            channels=whole_numbers(
                "channels",
                arguments.get("channels", [16, 32]),
                most=_MOST_CHANNELS,
                count=range(1, _MOST_BLOCKS + 1),
            ),
        )

    def _sides(self) -> list[tuple[int, int, int]]:
        """Return the channels, height and width of every block before it pools."""
        _, height, width = self.image
        return [
            (channels, height // _POOL**place, width // _POOL**place)
            for place, channels in enumerate(self.channels)
        ]

    @property
    def _flat(self) -> int:
        channels, height, width = self._sides()[-1]
        return channels * (height // _POOL) * (width // _POOL)

    @property
    def shapes(self) -> Shapes:
        found: Shapes = {}
        inputs = self.image[0]
        for place, channels in enumerate(self.channels):
            found[f"blocks.{place}.convolution.weight"] = (channels, inputs, _KERNEL, _KERNEL)
            found[f"blocks.{place}.convolution.bias"] = (channels,)
            found[f"blocks.{place}.normalisation.weight"] = (channels,)
            found[f"blocks.{place}.normalisation.bias"] = (channels,)
            inputs = channels
        return found | {"last.weight": (self.outputs, self._flat), "last.bias": (self.outputs,)}

    @property
    def products(self) -> int:
        total, inputs = self._flat * self.outputs, self.image[0]
        for channels, height, width in self._sides():
            total += inputs * channels * _KERNEL**2 * height * width
            inputs = channels
        return total

    def module(self) -> Any:
        from collections import OrderedDict

        from torch import nn

        blocks, inputs = nn.Sequential(), self.image[0]
        for channels in self.channels:
            parts = OrderedDict(
                convolution=nn.Conv2d(inputs, channels, _KERNEL, padding=_KERNEL // 2),
                normalisation=nn.GroupNorm(groups(channels), channels),
                activation=nn.ReLU(),
                pooling=nn.MaxPool2d(_POOL),
            )
            blocks.append(nn.Sequential(parts))
            inputs = channels
        whole = OrderedDict(
            image=nn.Unflatten(1, self.image),
            blocks=blocks,
            flat=nn.Flatten(),
            last=nn.Linear(self._flat, self.outputs),
        )
        return nn.Sequential(whole)

    def logits(self, graph: Any, weights: Mapping[str, NDArray[Any]]) -> None:
        graph.reshape(self.image)
        for place, (channels, height, width) in enumerate(self._sides()):
            block = f"blocks.{place}"
            graph.convolution(
                weights[f"{block}.convolution.weight"], weights[f"{block}.convolution.bias"]
            )
            graph.group_normalisation(
                weights[f"{block}.normalisation.weight"],
                weights[f"{block}.normalisation.bias"],
                groups=groups(channels),
                shape=(channels, height, width),
            )
            graph.add("Relu")
            graph.add("MaxPool", kernel_shape=[_POOL, _POOL], strides=[_POOL, _POOL])
        graph.reshape((self._flat,))
        graph.linear(weights["last.weight"], weights["last.bias"])


def groups(channels: int) -> int:
    """Return the number of groups: of about four channels each, or of a divisor of them."""
    return channels // math.gcd(channels, _GROUP)
