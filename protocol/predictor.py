"""Prediction sets from a threshold, for numpy arrays and torch tensors.

The module works on tensors without importing torch.
"""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.probabilities import check_probabilities


@dataclass(frozen=True)
class Predictor:
    """The prediction sets C(x) = {y : S(x, y) <= threshold}; threshold 1 holds every label.

    Probabilities are converted to single precision, in which owners score and report them. A
    threshold may be a score that many records share (that of a rank, for example), and in another
    precision the same score could lie slightly above it.
    """

    score: LabelScore
    threshold: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise BadInput(f"threshold is {self.threshold!r}; it must lie in [0, 1]")

    def sets(self, probs: Any, *, u: Any = None) -> Any:
        """Return (n, K) booleans of the same kind as the input.

        An array gives an array; a tensor gives a tensor on the same device.
        """
        mask = self._mask(probs, u)
        return sys.modules["torch"].from_numpy(mask).to(probs.device) if _is_tensor(probs) else mask

    def labels(self, probs: Any, *, u: Any = None) -> list[list[int]]:
        """Return the labels of every set, in order of their index."""
        return [np.flatnonzero(row).tolist() for row in self._mask(probs, u)]

    def sizes(self, probs: Any, *, u: Any = None) -> NDArray[np.int64]:
        """Return the number of labels in every set."""
        return self._mask(probs, u).sum(axis=1, dtype=np.int64)

    def _mask(self, probs: Any, u: Any) -> NDArray[np.bool_]:
        single = check_probabilities(_as_array(probs)).astype(np.float32, copy=False)
        scores = self.score.all_scores(single, u=None if u is None else _as_array(u))
        return scores <= np.float64(self.threshold)


def _is_tensor(values: Any) -> bool:
    return "torch" in sys.modules and isinstance(values, sys.modules["torch"].Tensor)


def _as_array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu().numpy() if _is_tensor(values) else values)
