"""The interface of a network: its parameters by name and shape, its first weights, and its forms.

A plan describes a network by a name, public arguments, and the numbers of its inputs and outputs.
No code travels: the name is one of the built-in networks, or a factory that the owner installed
(`confide.protocol.architectures.factories`). Weights travel as one row of float32 numbers,
parameter by parameter in the order of `shapes`.
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput

Weights = NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]
# The least and the largest target.
Span = tuple[float, float]

# An owner holds one number of every unit for at least 256 records at a time, so the number of units
# is bounded.
MOST_UNITS = 1 << 17
MOST_ARGUMENT_BYTES = 4096
# Targets beyond it would leave few digits of single precision for their differences.
MOST_TARGET = 1e12


class Network(ABC):
    """A network that maps rows of `features` numbers in [-1, 1] to `outputs` logits."""

    features: int
    outputs: int
    # Whether its inputs are the outputs of the plan's model, which stays as it is, instead of a
    # record's own features.
    on_backbone: ClassVar[bool] = False

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """The shape of every parameter, by name, in the order in which weights travel."""

    @property
    @abstractmethod
    def products(self) -> int:
        """The multiplications of a record's forward pass, which bound the work of a step."""

    @property
    def widths(self) -> tuple[int, ...] | None:
        """The widths from inputs to outputs, if it is linear layers with ReLU between them."""
        return None

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @abstractmethod
    def module(self) -> Any:
        """Return a torch module with parameters of these names and shapes, in this order."""

    @abstractmethod
    def file(self, weights: Mapping[str, NDArray[Any]], *, centre: float) -> bytes:
        """Return the ONNX file of the network with these weights, for features around `centre`."""

    @abstractmethod
    def first_weights(self) -> Weights:
        """Return the initial weights, which are public and the same for everybody."""


class BuiltIn(Network):
    """A network of this package, or of one that registers it: known by a name."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def of(cls, arguments: Mapping[str, Any], *, features: int, outputs: int) -> Self:
        """Make the network from these public arguments; refuse arguments that it does not take."""

    @abstractmethod
    def logits(self, graph: Any, weights: Mapping[str, NDArray[Any]]) -> None:
        """Add the nodes of an ONNX graph (`confide.protocol.architectures.export.Graph`)."""

    def file(self, weights: Mapping[str, NDArray[Any]], *, centre: float) -> bytes:
        from confide.protocol.architectures.export import graph_file

        return graph_file(self, weights, centre=centre)

    def first_weights(self) -> Weights:
        """Return a public draw.

        Matrices and kernels are uniform, scaled by the inputs of a unit. Of the parameters of one
        dimension, the scales of normalisations are 1 and biases are 0.
        """
        rng = np.random.default_rng(list(parameters_digest(self.shapes)))
        parts: list[NDArray[Any]] = []
        for name, shape in self.shapes.items():
            if len(shape) > 1:
                bound = 1 / math.sqrt(math.prod(shape[1:]))
                parts.append(rng.uniform(-bound, bound, math.prod(shape)))
            else:
                parts.append(np.full(shape, 1.0 if name.endswith("weight") else 0.0))
        return np.concatenate(parts).astype(np.float32)


def scaled(features: NDArray[Any], centre: float) -> NDArray[np.float64]:
    """Return features as a network sees them: (x - centre) / max(centre, 1 - centre).

    They are clipped to [0, 1] before, so they are in [-1, 1]; a feature that is no number counts as
    the centre. Every operation is on one element alone, so a record's values do not depend on the
    others. Features around 0 have shorter gradients for the same differences between records, so
    that clipping and noise take less.
    """
    known = np.array(features, dtype=np.float64)
    known[np.isnan(known)] = centre
    np.clip(known, 0.0, 1.0, out=known)
    known -= centre
    known /= max(centre, 1 - centre)
    return known


def shares(targets: NDArray[Any], span: Span) -> NDArray[np.float64]:
    """Return targets as a network learns them: clipped to the span, which becomes [-1, 1].

    A target that is no number stays none. Every operation is on one element alone.
    """
    low, high = span
    known = np.clip(np.asarray(targets, dtype=np.float64), low, high)
    return np.asarray(2 * ((known - low) / (high - low)) - 1)


def check_span(low: float, high: float, *, labels: int) -> None:
    """Refuse an invalid range of targets, or a range for a network that learns labels."""
    if labels and (low, high) != (0.0, 0.0):
        raise BadInput(
            f"target-low is {low!r} and target-high {high!r} with {labels} labels; accepted is 0 "
            "for both"
        )
    if not labels and not -MOST_TARGET <= low < high <= MOST_TARGET:
        raise BadInput(
            f"a network of numbers has targets from {low!r} to {high!r}; accepted is a public "
            f"range, target-low below target-high, within {MOST_TARGET:g}"
        )


def split_weights(shapes: Shapes, weights: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Return every parameter with its name, as a view of the row of weights."""
    start = 0
    for name, shape in shapes.items():
        end = start + math.prod(shape)
        yield name, weights[start:end].reshape(shape)
        start = end


def parameters_digest(shapes: Shapes) -> bytes:
    """Return the digest of the names and shapes of parameters, in their order."""
    listed = [[name, list(shape)] for name, shape in shapes.items()]
    return hashlib.sha256(json.dumps(listed, separators=(",", ":")).encode()).digest()


def canonical(arguments: Mapping[str, Any]) -> str:
    """Return arguments as JSON in the one form that plans accept."""
    try:
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(
            f"arguments are no JSON: {error}; accepted are numbers, text, lists"
        ) from None
    if len(text.encode()) > MOST_ARGUMENT_BYTES:
        raise BadInput(
            f"arguments have {len(text.encode())} bytes; accepted are at most {MOST_ARGUMENT_BYTES}"
        )
    return text


def read_arguments(text: str) -> dict[str, Any]:
    """Read arguments in canonical form."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"arguments are {text[:100]!r}; accepted is a JSON object") from None
    if not isinstance(found, dict) or canonical(found) != text:
        raise BadInput(
            f"arguments are {text[:100]!r}; accepted is a JSON object, its keys sorted, no spaces"
        )
    return found


def whole_numbers(name: str, value: Any, *, most: int, count: range) -> tuple[int, ...]:
    """Read an argument that is a list of whole numbers from 1 to `most`, or one such number."""
    listed = value if isinstance(value, list) else [value]
    if len(listed) not in count or not all(
        type(number) is int and 1 <= number <= most for number in listed
    ):
        raise BadInput(
            f"{name} is {str(value)[:100]}; accepted are {count.start} to {count.stop - 1} whole "
            f"numbers from 1 to {most}"
        )
    return tuple(listed)


def check_names(network: str, arguments: Mapping[str, Any], accepted: tuple[str, ...]) -> None:
    """Refuse an argument that the network does not take."""
    unknown = sorted(set(arguments) - set(accepted))
    if unknown:
        raise BadInput(
            f"{network} has no argument {', '.join(unknown)}; accepted: "
            f"{', '.join(accepted) or 'none'}"
        )
