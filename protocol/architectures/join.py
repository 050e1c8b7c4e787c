"""Join a frozen model and the head that was trained on its outputs to one ONNX file.

The file computes what owners computed: the model's last output in single precision, 0 for a number
that is not finite, then the head, which clips and scales its inputs.
"""

from collections.abc import Iterator
from typing import Any

from confide.protocol.errors import BadInput

_OLDEST = 11
_IR = 8
_STANDARD = ("", "ai.onnx")


def joined(backbone: bytes, head: bytes, *, width: int) -> bytes:
    """Return the ONNX file of a head on a backbone with `width` outputs; the same bytes each time.

    The head's nodes are read in the backbone's version of ONNX, in which they mean the same from
    version 11 on.
    """
    import onnx

    whole, top = _read(onnx, backbone), onnx.ModelProto.FromString(head)
    version = _version(whole)
    if version is None:
        whole.opset_import.extend(top.opset_import)
    elif version < _OLDEST:
        raise BadInput(
            f"the backbone is in version {version} of ONNX's operators; accepted is {_OLDEST} or "
            "later: export it again, and plan the training with that file"
        )
    output, prefix = _last_output(onnx, whole, width), _unused_prefix(whole)
    added = onnx.compose.add_prefix_graph(top.graph, prefix)
    graph = whole.graph
    graph.node.extend(_finite(onnx, output, added.input[0].name, prefix=prefix))
    graph.node.extend(added.node)
    graph.initializer.extend(added.initializer)
    graph.initializer.append(
        onnx.helper.make_tensor(f"{prefix}zero", onnx.TensorProto.FLOAT, [], [0.0])
    )
    # The number of records has the backbone's name for it, or none.
    added.output[0].type.tensor_type.shape.dim[0].Clear()
    del graph.output[:]
    graph.output.extend(added.output)
    whole.ir_version = max(whole.ir_version, _IR)
    written: bytes = whole.SerializeToString(deterministic=True)
    return written


def _read(onnx: Any, backbone: bytes) -> Any:
    try:
        whole = onnx.ModelProto.FromString(backbone)
    except Exception as error:  # protobuf raises several kinds of errors, some undocumented
        raise BadInput(
            f"the backbone cannot be read as ONNX ({type(error).__name__}); accepted is the file "
            "of the plan's model"
        ) from None
    if not whole.graph.output:
        raise BadInput("the backbone has no output; accepted is the file of the plan's model")
    return whole


def _last_output(onnx: Any, whole: Any, width: int) -> str:
    """Return the name of the last output; refuse one that is known to have another shape."""
    try:
        found = onnx.shape_inference.infer_shapes(whole).graph.output[-1]
    except Exception:  # a shape that cannot be inferred is not known
        found = whole.graph.output[-1]
    kind = found.type.tensor_type
    if kind.HasField("shape"):
        sizes = [size.dim_value if size.HasField("dim_value") else None for size in kind.shape.dim]
        if len(sizes) != 2 or sizes[1] not in (None, width):
            raise BadInput(
                f"the backbone's last output has shape {sizes}; accepted are rows of {width} "
                "numbers, the inputs of the head"
            )
    return str(whole.graph.output[-1].name)


def _finite(onnx: Any, source: str, target: str, *, prefix: str) -> list[Any]:
    """Return nodes that make a tensor single precision, with 0 for numbers that are not finite."""
    names = {part: f"{prefix}{part}" for part in ("single", "nan", "infinite", "unusable", "zero")}
    node = onnx.helper.make_node
    return [
        node("Cast", [source], [names["single"]], to=onnx.TensorProto.FLOAT),
        node("IsNaN", [names["single"]], [names["nan"]]),
        node("IsInf", [names["single"]], [names["infinite"]]),
        node("Or", [names["nan"], names["infinite"]], [names["unusable"]]),
        node("Where", [names["unusable"], names["zero"], names["single"]], [target]),
    ]


def _version(whole: Any) -> int | None:
    """Return the backbone's version of the standard operators; None if it uses none."""
    return next((entry.version for entry in whole.opset_import if entry.domain in _STANDARD), None)


def _unused_prefix(whole: Any) -> str:
    """Return a prefix that no name of the model starts with."""
    names = set(_names(whole.graph))
    prefix = "head_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def _names(graph: Any) -> Iterator[str]:
    """All names of values and nodes in a graph and in the graphs inside its nodes."""
    for entry in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        yield entry.name
    for entry in graph.sparse_initializer:
        yield entry.values.name
    for node in graph.node:
        yield node.name
        yield from node.input
        yield from node.output
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _names(inner)
