"""A model that predicts one's own records, many at a call.

An owner runs foreign models on one record a call, because a model's results leave with its answers.
Here all results stay with whoever predicts, so records may share a call; the graph is checked all
the same.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model

Array = NDArray[Any]
Progress = Callable[[int, int], None]

# Records of one call, which bound its memory.
ROWS = 4096


class BatchModel:
    """An ONNX model, ready to run; `digest` is the SHA-256 of its file, by which cards name it."""

    def __init__(self, file: Model, name: str = "model") -> None:
        self.digest, self._session = file.digest, file.open(name)

    def __call__(
        self, features: Array, *, width: int | None, progress: Progress | None = None
    ) -> Array:
        """Return `width` numbers of single precision a record; None is what the model declares.

        A record for which the model has no result gets NaN. `progress` is called with the records
        that are done, and all.
        """
        outputs = self._session.outputs if width is None else width
        if outputs is None:
            raise BadInput(
                "the model does not say how many numbers it returns; accepted is one that does, or "
                "a card that names the labels"
            )
        features = self._session.arrange(features)
        self._session.accept(features.shape[1:], outputs)
        found = np.empty((len(features), outputs), dtype=np.float32)
        for start in range(0, len(features), ROWS):
            rows = slice(start, start + ROWS)
            try:
                self._session.together(features[rows], found[rows])
            except Exception:  # a record fails, or the model takes one at a time
                self._session.each(features[rows], found[rows])
            if progress is not None:
                progress(min(start + ROWS, len(features)), len(features))
        return found


def read_model(path: Path | str) -> BatchModel:
    """Read an ONNX file with all weights inside, check its graph and prepare it to run."""
    return BatchModel(Model.read(Path(path)), str(path))


def checked_model(model: BatchModel | Path | str, digest: bytes) -> BatchModel:
    """Return the model if it has this digest; the file of another one is not even parsed.

    A digest of zeros stands for no model, which no file is.
    """
    if not any(digest):
        raise BadInput(
            "the card names no model, so no file can be compared with it; accepted are the results "
            "of the model, and no model"
        )
    found = model if isinstance(model, BatchModel) else Model.read(Path(model))
    if found.digest != digest:
        raise BadInput(
            f"the model has SHA-256 {found.digest.hex()}; accepted is the one that the card was "
            f"calibrated for, {digest.hex()}"
        )
    return found if isinstance(found, BatchModel) else BatchModel(found, str(model))
