"""The file of trained weights: one row of numbers, and what they are."""

import hashlib
import io
import json
from typing import Any

import numpy as np
from torch import nn

from confide.protocol.architectures.base import Shapes, Weights


def weights_of(module: nn.Module, shapes: Shapes) -> Weights:
    """Return the weights of a module as one row, parameter by parameter in the order of shapes."""
    parameters = dict(module.named_parameters())
    parts = [parameters[name].detach().cpu().numpy().ravel() for name in shapes]
    return np.concatenate(parts).astype(np.float32)


def pack_weights(weights: Weights, shapes: Shapes, *, about: dict[str, Any]) -> bytes:
    """Return an npz file of `weights`, and of `about` with the names and shapes of parameters."""
    said = about | {"parameters": {name: list(shape) for name, shape in shapes.items()}}
    content = io.BytesIO()
    np.savez(content, about=np.array(json.dumps(said)), weights=weights)
    return content.getvalue()


def unpack_weights(file: bytes) -> tuple[Weights, dict[str, Any]]:
    """Return the weights of a file, and what it says about itself with its SHA-256."""
    with np.load(io.BytesIO(file), allow_pickle=False) as archive:
        weights, said = archive["weights"], json.loads(str(archive["about"]))
    return weights, said | {"sha256": hashlib.sha256(file).hexdigest()}
