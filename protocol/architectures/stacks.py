"""Linear layers with ReLU between them: `linear` has one, `mlp` has hidden layers.

`head` is either of them on the outputs of a frozen model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
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

MOST_HIDDEN = 14
# An owner keeps the inputs of a head for all records in memory and on disk.
MOST_HEAD_INPUTS = 1 << 13


@dataclass(frozen=True)
class MLP(BuiltIn):
    """A multilayer perceptron; `hidden` are the widths of its hidden layers."""

    features: int
    outputs: int
    hidden: tuple[int, ...]

    name: ClassVar[str] = "mlp"

    def __post_init__(self) -> None:
        if sum(self.widths) > MOST_UNITS or min(self.widths) < 1:
            raise BadInput(
                f"layers have widths {self.widths}; accepted are widths of at least 1, and of at "
                f"most {MOST_UNITS} together"
            )

    @classmethod
    def of(cls, arguments: Mapping[str, Any], *, features: int, outputs: int) -> Self:
        check_names(cls.name, arguments, ("hidden",))
        hidden = whole_numbers(
            "hidden", arguments.get("hidden", 64), most=MOST_UNITS, count=range(1, MOST_HIDDEN + 1)
        )
        return cls(features, outputs, hidden)

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.features, *self.hidden, self.outputs)

    @property
    def shapes(self) -> Shapes:
        found: Shapes = {}
        for place, (inputs, outputs) in enumerate(pairwise(self.widths)):
            # The places of the linear layers in a torch.nn.Sequential with ReLU between them.
            found[f"{2 * place}.weight"] = (outputs, inputs)
            found[f"{2 * place}.bias"] = (outputs,)
        return found

    @property
    def products(self) -> int:
        return sum(a * b for a, b in pairwise(self.widths))

    def module(self) -> Any:
        from torch import nn

        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(self.widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def logits(self, graph: Any, weights: Mapping[str, NDArray[Any]]) -> None:
        for place in range(len(self.widths) - 1):
            if place:
                graph.add("Relu")
            graph.linear(weights[f"{2 * place}.weight"], weights[f"{2 * place}.bias"])


class Linear(MLP):
    """Softmax regression."""

    name: ClassVar[str] = "linear"

    @classmethod
    def of(cls, arguments: Mapping[str, Any], *, features: int, outputs: int) -> Self:
        check_names(cls.name, arguments, ())
        return cls(features, outputs, ())


class Head(MLP):
    """The last layers of a network, on the outputs of the plan's model; `hidden` may be empty."""

    name: ClassVar[str] = "head"
    on_backbone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features > MOST_HEAD_INPUTS:
            raise BadInput(
                f"a head has {self.features} inputs; accepted are at most {MOST_HEAD_INPUTS}, one "
                "for each output of its model"
            )

    @classmethod
    def of(cls, arguments: Mapping[str, Any], *, features: int, outputs: int) -> Self:
        check_names(cls.name, arguments, ("hidden",))
        hidden = whole_numbers(
            "hidden", arguments.get("hidden", []), most=MOST_UNITS, count=range(MOST_HIDDEN + 1)
        )
        return cls(features, outputs, hidden)
