"""Reads the graph of a model and refuses one that could reach beyond the record it is given.

Such a graph could use files, other code, random numbers, or values that one call leaves for the
next. The accepted parts are written again, and only that copy is given to onnxruntime.
"""

from collections.abc import Iterator
from typing import Any

from confide.protocol.errors import BadInput
from confide.protocol.models.operators import OPERATORS

# Fields that do not change what a graph computes; they are dropped.
COMMENTS = ("doc_string", "metadata_props", "configuration", "device_configurations")


def checked_graph(data: bytes) -> bytes:
    """Check every part of a model, and write again what was checked and nothing else."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise BadInput(
            "models need the packages onnx and onnxruntime; install confide[client]"
        ) from None
    if data[4:8] == b"ORTM":
        raise BadInput("it is in onnxruntime's own format; accepted is ONNX")
    try:
        model: Any = onnx.ModelProto.FromString(data)
        model.DiscardUnknownFields()
        if not model.graph.output:
            raise BadInput(
                "it is no ONNX model, or one without outputs; accepted is ONNX with all weights "
                "inside"
            )
        for message in _parts(model):
            _check(message, onnx)
            for name in COMMENTS:
                if name in message.DESCRIPTOR.fields_by_name:
                    message.ClearField(name)
        return model.SerializeToString()
    except BadInput:
        raise
    except Exception as error:  # protobuf raises several kinds of errors, some undocumented
        raise BadInput(
            f"it cannot be read as ONNX ({type(error).__name__}); accepted is ONNX with all "
            "weights inside"
        ) from None


def _parts(root: Any) -> Iterator[Any]:
    """Every message inside a message: graphs inside nodes, tensors inside attributes, and so on."""
    from google.protobuf.message import Message

    waiting = [root]
    while waiting:
        message = waiting.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting.extend([value] if isinstance(value, Message) else value)


def _check(message: Any, onnx: Any) -> None:
    """Refuse a part of a model that could reach beyond a record."""
    if isinstance(message, onnx.ModelProto) and (message.functions or message.training_info):
        raise BadInput(
            "it has functions or training steps of its own; accepted is a graph of standard "
            "operators (inline them)"
        )
    if isinstance(message, onnx.OperatorSetIdProto) and message.domain not in OPERATORS:
        raise BadInput(
            f"it uses operators of {message.domain!r}; accepted are those of ONNX and ai.onnx.ml"
        )
    if isinstance(message, onnx.TensorProto) and (message.data_location or message.external_data):
        raise BadInput(
            f"tensor {message.name!r} is kept outside the file; accepted is ONNX with all weights "
            "inside"
        )
    if isinstance(message, onnx.NodeProto):
        if message.op_type not in OPERATORS.get(message.domain, ()):
            full = f"{message.domain}.{message.op_type}".lstrip(".")
            raise BadInput(
                f"it uses the operator {full}; accepted are standard ones whose result its inputs "
                "determine"
            )
        if _trains(message):
            raise BadInput(
                f"it has a {message.op_type} in training mode; accepted are models exported for "
                "inference"
            )


def _trains(node: Any) -> bool:
    """Whether a node is in training mode.

    Dropout then draws random numbers; normalisation updates running means, which onnxruntime keeps
    for the next call.
    """
    if node.op_type == "Dropout":
        return any(node.input[2:])
    if node.op_type == "BatchNormalization":
        return any(node.output[1:]) or any(
            a.name == "training_mode" and a.i != 0 for a in node.attribute
        )
    return False
