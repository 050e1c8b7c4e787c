"""Checkpoints of a training: written whole or not at all, readable by their owner only.

A checkpoint holds the weights, the optimizer, the steps spent and the key that all randomness comes
from, so that a resumed training repeats the draws of the steps that were lost. The key is left out
once training is over.
"""

import hashlib
import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.files import write_whole

_FORMAT = 2


@dataclass(frozen=True)
class Checkpoint:
    """The state after `step` steps, which are spent; `about` names their records and settings.

    `randomness` says where the key came from; a resumed training keeps it.
    """

    about: str
    step: int
    key: bytes
    randomness: str
    model: dict[str, Any]
    optimizer: dict[str, Any]


def about(settings: str, *arrays: NDArray[Any]) -> str:
    """A digest of settings and records: a key may only be used with those it was drawn for."""
    digest = hashlib.sha256(settings.encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write or replace the file in one step."""
    content = io.BytesIO()
    torch.save({**vars(checkpoint), "key": checkpoint.key.hex(), "format": _FORMAT}, content)
    write_whole(path, content.getvalue(), mode=0o600)


def load(path: Path, expected: str) -> Checkpoint | None:
    """Read a checkpoint, or None if there is none; one of other records or settings is refused."""
    if not path.exists():
        return None
    try:
        fields = torch.load(path, map_location="cpu", weights_only=True)
        found = fields.pop("format")
        checkpoint = Checkpoint(**{**fields, "key": bytes.fromhex(fields["key"])})
    except (
        OSError,
        RuntimeError,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
    ) as error:
        raise BadInput(
            f"{path} cannot be read as a checkpoint: {type(error).__name__}; accepted is one "
            "written here"
        ) from None
    if found != _FORMAT:
        raise BadInput(
            f"{path} is a checkpoint of format {found}; this version reads format {_FORMAT}"
        )
    if checkpoint.about != expected:
        raise BadInput(
            f"{path} was written for other records or settings; accepted is the same training, or "
            "another file"
        )
    return checkpoint
