"""ONNX graphs for tests, built node by node."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from client.models import Model

FLOAT = onnx.TensorProto.FLOAT
node: Any = onnx.helper.make_node
value: Any = onnx.helper.make_tensor_value_info


def constant(name: str, content: Any, kind: Any = np.float32) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(content, dtype=kind), name)


def proto(
    nodes: Sequence[Any], constants: Sequence[Any] = (), *, inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None, opset: int = 17, domains: Sequence[str] = (),
) -> Any:  # fmt: skip
    """A model from `x` (any number of records of two features) to `p`, unless inputs and outputs are given."""
    graph = onnx.helper.make_graph(
        nodes, "graph", inputs or [value("x", FLOAT, ["n", 2])], outputs or [value("p", FLOAT, None)], constants
    )
    imports = [onnx.helper.make_opsetid("", opset), *(onnx.helper.make_opsetid(domain, 1) for domain in domains)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)


def of_bytes(data: bytes) -> Model:
    return Model(data, hashlib.sha256(data).digest())


def model(made: Any) -> Model:
    return of_bytes(made.SerializeToString())


WEIGHTS = np.array([[0.5, -0.5, 0.0], [0.1, 0.2, 0.3]], dtype=np.float32)


def linear(weights: NDArray[Any] = WEIGHTS, entry: str = "x") -> list[Any]:
    """Nodes from `entry` to `p`: the softmax of a linear map, its weights inside."""
    return [
        node("Constant", [], ["w"], value=constant("w", weights)),
        node("MatMul", [entry, "w"], ["z"]),
        node("Softmax", ["z"], ["p"], axis=1),
    ]


def network(features: int = 16, hidden: int = 64, labels: int = 26) -> Model:
    """A network with one hidden layer and random weights."""
    rng = np.random.default_rng(5)
    shapes = {"a": (features, hidden), "b": (hidden,), "c": (hidden, labels), "d": (labels,)}
    nodes = [
        node("Gemm", ["x", "a", "b"], ["h"]), node("Relu", ["h"], ["r"]), node("Gemm", ["r", "c", "d"], ["z"]),
        node("Softmax", ["z"], ["p"], axis=1),
    ]  # fmt: skip
    return model(
        proto(
            nodes,
            [constant(name, rng.normal(size=shape) * 0.3) for name, shape in shapes.items()],
            inputs=[value("x", FLOAT, ["n", features])],
            outputs=[value("p", FLOAT, ["n", labels])],
        )
    )
