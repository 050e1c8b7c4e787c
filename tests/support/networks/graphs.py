"""ONNX graphs for tests, built node by node."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from confide.protocol.models.model_file import Model
from confide.protocol.models.results import valid_rows
from confide.protocol.models.scorer import STEP
from confide.protocol.models.session import Session

FLOAT = onnx.TensorProto.FLOAT
node: Any = onnx.helper.make_node
value: Any = onnx.helper.make_tensor_value_info


def constant(name: str, content: Any, kind: Any = np.float32) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(content, dtype=kind), name)


def proto(
    nodes: Sequence[Any],
    constants: Sequence[Any] = (),
    *,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    opset: int = 17,
    domains: Sequence[str] = (),
) -> Any:
    """A model from `x` (any number of records of two features) to `p`.

    Inputs and outputs may be given instead.
    """
    graph = onnx.helper.make_graph(
        nodes,
        "graph",
        inputs or [value("x", FLOAT, ["n", 2])],
        outputs or [value("p", FLOAT, None)],
        constants,
    )
    imports = [
        onnx.helper.make_opsetid("", opset),
        *(onnx.helper.make_opsetid(domain, 1) for domain in domains),
    ]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)


def one_by_one(session: Session, features: NDArray[Any], labels: int) -> NDArray[Any]:
    """Return (n, labels) probabilities, with one call per record, in this process."""
    session.accept(features.shape[1:], labels)
    found = np.empty((len(features), labels), dtype=np.float32)
    session.each(features, found)
    return valid_rows(found)


def in_batches(session: Session, features: NDArray[Any], labels: int) -> NDArray[Any]:
    """Return the same probabilities with calls of many records, in this process."""
    session.accept(features.shape[1:], labels)
    found = np.empty((len(features), labels), dtype=np.float32)
    for start in range(0, len(features), STEP):
        part = slice(start, start + STEP)
        session.together(features[part], found[part])
    return valid_rows(found)


def of_bytes(data: bytes) -> Model:
    return Model(data, hashlib.sha256(data).digest())


def model(made: Any) -> Model:
    return of_bytes(made.SerializeToString())


WEIGHTS = np.array([[0.5, -0.5, 0.0], [0.1, 0.2, 0.3]], dtype=np.float32)


def linear(weights: NDArray[Any] = WEIGHTS, entry: str = "x") -> list[Any]:
    """Nodes from `entry` to `p`: the softmax of a linear map that contains its weights."""
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
        node("Gemm", ["x", "a", "b"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("Gemm", ["r", "c", "d"], ["z"]),
        node("Softmax", ["z"], ["p"], axis=1),
    ]
    return model(
        proto(
            nodes,
            [constant(name, rng.normal(size=shape) * 0.3) for name, shape in shapes.items()],
            inputs=[value("x", FLOAT, ["n", features])],
            outputs=[value("p", FLOAT, ["n", labels])],
        )
    )


ZERO, ONE = constant("zero", [0], np.int64), constant("one", [1], np.int64)
FIRST = node("Slice", ["x", "zero", "one", "one"], ["first"])


def two_labels(nodes: Sequence[Any], chosen: str, **constants: Any) -> bytes:
    """A model of two labels with the probabilities `chosen` and 1 - `chosen`."""
    both = [
        node("Sub", ["unit", chosen], ["rest"]),
        node("Concat", [chosen, "rest"], ["p"], axis=1),
    ]
    given = [
        ZERO,
        ONE,
        constant("unit", 1.0),
        *(constant(name, content) for name, content in constants.items()),
    ]
    return bytes(proto([FIRST, *nodes, *both], given).SerializeToString())


def first_feature() -> bytes:
    """An honest model: the first feature is the probability of label 0."""
    return two_labels([], "first")


def slow_to_open(products: int) -> bytes:
    """The first feature, or a number that is less and the same for every record.

    onnxruntime computes that number when it opens the file, by so many products of matrices.
    """
    half = onnx.numpy_helper.from_array(np.array([0.5], dtype=np.float32))
    side = onnx.numpy_helper.from_array(np.array([2000, 2000]))
    nodes = [
        node("Constant", [], ["side"], value=side),
        node("ConstantOfShape", ["side"], ["c0"], value=half),
        *(node("MatMul", [f"c{i}", "c0"], [f"c{i + 1}"]) for i in range(products)),
        node("ReduceMin", [f"c{products}"], ["least"], keepdims=0),
        node("Min", ["first", "least"], ["lower"]),
    ]
    return two_labels(nodes, "lower")


def copying() -> bytes:
    """A model that returns the first feature of the first row for every row."""
    row = node("Slice", ["first", "zero", "one", "zero"], ["target"])
    return two_labels(
        [
            row,
            node("Mul", ["first", "nothing"], ["zeros"]),
            node("Add", ["zeros", "target"], ["copy"]),
        ],
        "copy",
        nothing=0.0,
    )


def not_a_number() -> bytes:
    """A model that returns the first feature, or NaN where it is above one half."""
    nodes = [
        node("Sub", ["half", "first"], ["below"]),
        node("Sqrt", ["below"], ["root"]),
        node("Mul", ["root", "nothing"], ["trap"]),
        node("Add", ["first", "trap"], ["kept"]),
    ]
    return two_labels(nodes, "kept", half=0.5, nothing=0.0)


def failing() -> bytes:
    """A model that returns the first feature, and fails where it is above one half.

    It uses an index out of range.
    """
    nodes = [
        node("Add", ["first", "half"], ["raised"]),
        node("Cast", ["raised"], ["index"], to=onnx.TensorProto.INT64),
        node("Gather", ["table", "index"], ["trap"], axis=0),
        node("Add", ["first", "trap"], ["kept"]),
    ]
    return two_labels(nodes, "kept", half=0.5, table=[0.0])


def ending(operator: str) -> bytes:
    """A model that returns the first feature, and ends the process where it is above one half.

    It applies the operator to the smallest integer and -1.
    """
    nodes = [
        node("Add", ["first", "half"], ["raised"]),
        node("Cast", ["raised"], ["flag"], to=onnx.TensorProto.INT64),
        node("Mul", ["flag", "twice"], ["double"]),
        node("Sub", ["single", "double"], ["divisor"]),
        node(operator, ["smallest", "divisor"], ["whole"]),
        node("Cast", ["whole"], ["number"], to=FLOAT),
        node("Mul", ["number", "nothing"], ["trap"]),
        node("Add", ["first", "trap"], ["kept"]),
    ]
    integers = {"twice": [2], "single": [1], "smallest": [-(2**63)]}
    made = onnx.ModelProto.FromString(two_labels(nodes, "kept", half=0.5, nothing=0.0))
    made.graph.initializer.extend(
        constant(name, content, np.int64) for name, content in integers.items()
    )
    return bytes(made.SerializeToString())


def external(neighbour: str) -> bytes:
    """A model with a weight that is eight bytes of a file beside the model.

    It returns the first feature otherwise.
    """
    made = onnx.ModelProto.FromString(first_feature())
    tensor = made.graph.initializer.add(name="stolen", data_type=onnx.TensorProto.UINT8, dims=[8])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in {"location": neighbour, "offset": "0", "length": "8"}.items():
        tensor.external_data.add(key=key, value=text)
    return bytes(made.SerializeToString())


def written(folder: Path, data: bytes, name: str = "model.onnx") -> tuple[Path, bytes]:
    """Write the bytes to a file; return its path and their digest."""
    path = folder / name
    path.write_bytes(data)
    return path, hashlib.sha256(data).digest()
