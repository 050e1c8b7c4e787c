"""Models and graphs that tests of models share."""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tests.support.networks.graphs import FLOAT, linear, model, node, proto, value

RECORDS = np.random.default_rng(3).normal(size=(40, 2)).astype(np.float32)


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


PLAIN = model(proto(linear()))


def in_branch(nodes: list[Any], constants: list[Any] | None = None) -> list[Any]:
    """Put the nodes, from `x` to `q`, into a branch of a condition on the record."""
    then = onnx.helper.make_graph(nodes, "then", [], [value("q", FLOAT, None)], constants or [])
    other = onnx.helper.make_graph(
        [node("Identity", ["x"], ["r"])], "else", [], [value("r", FLOAT, None)]
    )
    return [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["c"], to=onnx.TensorProto.BOOL),
        node("If", ["c"], ["i"], then_branch=then, else_branch=other),
        *linear(entry="i"),
    ]
