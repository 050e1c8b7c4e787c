"""Tell whether a file is an export of a given network, with any weights.

An owner that took part in a training knows the network, but not the trained weights. If a file is
an export of that network, it holds at least no other graph.
"""

from itertools import zip_longest

import numpy as np
from google.protobuf.message import DecodeError

from confide.protocol.architectures.base import Network, Span, Weights
from confide.protocol.architectures.export import to_onnx
from confide.protocol.errors import BadInput
from confide.protocol.wire.columns import F4


def is_export(
    file: bytes,
    network: Network,
    *,
    centre: float,
    backbone: bytes | None = None,
    span: Span | None = None,
) -> bool:
    """Return whether `to_onnx` makes this file of a built-in network and some finite weights.

    Weights are read where numbered ones lie in an export. What decides is that they give the same
    bytes when they are exported again, so it does not matter what else a file holds.
    """

    def exported(weights: Weights) -> bytes:
        return to_onnx(network, weights, centre=centre, backbone=backbone, span=span)

    # Numbers up to the largest size of a network are exact in single precision.
    numbered = np.arange(1, network.size + 1, dtype=np.float32)
    found = np.zeros_like(numbered)
    try:
        files = (exported(numbered), exported(found), file)
        if len({len(content) for content in files}) > 1:
            return False
        for numbers, zeros, own in zip_longest(*map(_tensors, files), fillvalue=b""):
            if numbers != zeros and len(own) == len(numbers):
                found[np.frombuffer(numbers, F4).astype(np.int64) - 1] = np.frombuffer(own, F4)
        return exported(found) == file
    except (DecodeError, BadInput):
        return False


def _tensors(file: bytes) -> list[bytes]:
    """The bytes of all tensors of a file, as they are written in it."""
    import onnx

    return [tensor.raw_data for tensor in onnx.ModelProto.FromString(file).graph.initializer]
