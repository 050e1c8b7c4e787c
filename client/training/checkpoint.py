"""Files that hold a training under way: written whole or not at all, readable by their owner only.

A checkpoint holds the weights, the optimizer, the steps spent and the key that all chance comes
from, so training resumed from it repeats the very draws of the steps lost. The key is left out once
training is over.
"""

import hashlib
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.protocol.errors import BadInput

_FORMAT = 2


@dataclass(frozen=True)
class Checkpoint:
    """`step` steps are spent and in the weights; `about` names the records and settings they were
    taken with.

    `randomness` says where the key came from, whatever source a resumed training is given.
    """

    about: str
    step: int
    key: bytes
    randomness: str
    model: dict[str, Any]
    optimizer: dict[str, Any]


def about(settings: str, *arrays: NDArray[Any]) -> str:
    """A digest of settings and records: a key may never meet other records than those it was drawn
    for."""
    digest = hashlib.sha256(settings.encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file in one move, after its bytes are on disk."""
    partial = path.with_name(path.name + ".partial")
    fields = {**vars(checkpoint), "key": checkpoint.key.hex(), "format": _FORMAT}
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            torch.save(fields, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None


def load(path: Path, expected: str) -> Checkpoint | None:
    """The checkpoint at a path, or None where there is none yet; one of other records or settings
    is refused."""
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
