"""Write a trained network as an ONNX file, which the next plan names as its model by digest.

Features are clipped and scaled inside the file and the outputs are probabilities, so the file is a
model like any other. The same weights give the same bytes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.architectures.base import (
    BuiltIn,
    Network,
    Span,
    Weights,
    split_weights,
)
from confide.protocol.architectures.join import joined
from confide.protocol.errors import BadInput

_OPSET = 17
_IR = 8
_EPSILON = 1e-5
# Rows of one prediction, which bound its memory.
_ROWS = 4096


class Graph:
    """An ONNX graph that grows node by node; every node takes the value before it."""

    def __init__(self, onnx: Any, features: int) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._value = "features"
        self._features = features

    def add(self, operator: str, *inputs: str, **attributes: Any) -> None:
        """Add an operator of the last value and of constants."""
        result = f"value_{len(self._nodes)}"
        self._nodes.append(
            self._onnx.helper.make_node(operator, [self._value, *inputs], [result], **attributes)
        )
        self._value = result

    def constant(self, value: NDArray[Any]) -> str:
        """Add a constant and return its name."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(value, name))
        return name

    def numbers(self, value: Any) -> str:
        return self.constant(np.asarray(value, dtype=np.float32))

    def reshape(self, shape: tuple[int, ...]) -> None:
        """Give every record this shape; 0 keeps the number of records."""
        self.add("Reshape", self.constant(np.array([0, *shape], dtype=np.int64)))

    def linear(self, matrix: NDArray[Any], bias: NDArray[Any]) -> None:
        self.add("Gemm", self.numbers(matrix), self.numbers(bias), transB=1)

    def convolution(self, kernel: NDArray[Any], bias: NDArray[Any]) -> None:
        pad = kernel.shape[-1] // 2
        self.add("Conv", self.numbers(kernel), self.numbers(bias), pads=[pad] * 4)

    def group_normalisation(
        self,
        scale: NDArray[Any],
        bias: NDArray[Any],
        *,
        groups: int,
        shape: tuple[int, int, int],
    ) -> None:
        """Normalise groups of channels, as instances of a tensor with a channel for each group."""
        self.reshape((groups, -1))
        ones, zeros = self.numbers(np.ones(groups)), self.numbers(np.zeros(groups))
        self.add("InstanceNormalization", ones, zeros, epsilon=_EPSILON)
        self.reshape(shape)
        self.add("Mul", self.numbers(scale.reshape(-1, 1, 1)))
        self.add("Add", self.numbers(bias.reshape(-1, 1, 1)))

    def model(self, outputs: int) -> Any:
        """Return the finished model, whose last value is its output."""
        helper, real = self._onnx.helper, self._onnx.TensorProto.FLOAT
        self._nodes[-1].output[0] = "probabilities"
        return helper.make_model(
            helper.make_graph(
                self._nodes,
                "confide",
                [helper.make_tensor_value_info("features", real, ["records", self._features])],
                [helper.make_tensor_value_info("probabilities", real, ["records", outputs])],
                self._constants,
            ),
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR,
            producer_name="confide",
        )


def to_onnx(
    network: Network,
    weights: Weights,
    *,
    centre: float,
    backbone: bytes | None = None,
    span: Span | None = None,
) -> bytes:
    """Return the ONNX file of a network with these weights, for features around `centre`.

    The file of a network on a backbone contains that model too: `backbone` is its file. That of a
    network of numbers returns them in the unit of targets, within their `span`.
    """
    if network.on_backbone != (backbone is not None):
        raise BadInput(
            "the network is a head, and no backbone is given; accepted is the file of the plan's "
            "model, whose outputs it was trained on"
            if network.on_backbone
            else "a backbone is given, and the network has none; accepted is none"
        )
    if weights.shape != (network.size,) or not np.isfinite(weights).all():
        raise BadInput(
            f"weights have shape {weights.shape}, or hold numbers that are not finite; accepted "
            f"are {network.size} finite numbers"
        )
    file = network.file(dict(split_weights(network.shapes, weights)), centre=centre)
    if span is not None:
        file = _in_units(file, span)
    return file if backbone is None else joined(backbone, file, width=network.features)


def _in_units(file: bytes, span: Span) -> bytes:
    """Return the file with its last step, softmax, replaced by a map of [-1, 1] to the span."""
    import onnx

    model: Any = onnx.ModelProto.FromString(file)
    graph, (low, high) = model.graph, span
    last = next(node for node in graph.node if graph.output[0].name in node.output)
    if last.op_type != "Softmax":
        raise BadInput(
            f"the network's file ends in {last.op_type}; accepted is one that ends in Softmax"
        )
    steps: dict[str, dict[str, float]] = {
        "Clip": {"target_least": -1.0, "target_most": 1.0},
        "Mul": {"target_half": (high - low) / 2},
        "Add": {"target_middle": (low + high) / 2},
    }
    value, output = last.input[0], last.output[0]
    graph.node.remove(last)
    for operator, constants in steps.items():
        for name, number in constants.items():
            made = np.array(number, dtype=np.float32)
            graph.initializer.append(onnx.numpy_helper.from_array(made, name))
        result = output if operator == "Add" else f"target_{operator}"
        graph.node.append(onnx.helper.make_node(operator, [value, *constants], [result]))
        value = result
    written: bytes = model.SerializeToString(deterministic=True)
    return written


def graph_file(network: BuiltIn, weights: Mapping[str, NDArray[Any]], *, centre: float) -> bytes:
    """Write the graph of a built-in network."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise BadInput(
            "exporting a model needs the package onnx; install confide[client]"
        ) from None
    graph = Graph(onnx, network.features)
    graph.add("Clip", graph.numbers(0.0), graph.numbers(1.0))
    graph.add("Sub", graph.numbers(centre))
    graph.add("Div", graph.numbers(max(centre, 1 - centre)))
    network.logits(graph, weights)
    graph.add("Softmax", axis=-1)
    written: bytes = graph.model(network.outputs).SerializeToString(deterministic=True)
    return written


def with_range(file: bytes, *, low: float, high: float) -> bytes:
    """Return the file for features that run from `low` to `high` instead of from 0 to 1.

    They are given, and mapped to 0 to 1, in double precision: in single precision features of a
    narrow range far from 0 would be equal. The file clips them afterwards, as before.
    """
    import onnx

    model: Any = onnx.ModelProto.FromString(file)
    helper, graph, given = onnx.helper, model.graph, model.graph.input[0]
    inner, given.name = given.name, "raw_features"
    given.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    nodes = [
        helper.make_node("Sub", ["raw_features", "range_low"], ["range_distance"]),
        helper.make_node("Div", ["range_distance", "range_width"], ["range_share"]),
        helper.make_node("Cast", ["range_share"], [inner], to=onnx.TensorProto.FLOAT),
        *graph.node,
    ]
    del graph.node[:]
    graph.node.extend(nodes)
    for name, value in (("range_low", low), ("range_width", high - low)):
        graph.initializer.append(
            onnx.numpy_helper.from_array(np.array(value, dtype=np.float64), name)
        )
    written: bytes = model.SerializeToString(deterministic=True)
    return written


def predict_file(file: bytes, features: NDArray[Any]) -> NDArray[np.float64]:
    """Return the probabilities of an exported network, in batches.

    It is for files of one's own: a model of somebody else runs in `confide.client.records`.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    parts = [
        session.run(None, {name: features[start : start + _ROWS].astype(np.float32)})[0]
        for start in range(0, len(features), _ROWS)
    ]
    return np.concatenate(parts).astype(np.float64)
