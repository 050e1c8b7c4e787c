"""Features on a common scale, by public bounds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scaling:
    """Clip to public bounds, then (x - centre) / width.

    It ships with the model, so it must be public.
    """

    low: Array
    high: Array
    centre: Array
    width: Array

    def __call__(self, features: NDArray[Any]) -> Array:
        return np.asarray((np.clip(features, self.low, self.high) - self.centre) / self.width)


def public_scaling(low: Any, high: Any) -> Scaling:
    """Map bounds that are known without the records, one number or one a feature, to [-1, 1]."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise BadInput(
            "bounds are not finite or not in order; accepted is low < high for every feature"
        )
    return Scaling(low, high, (low + high) / 2, (high - low) / 2)
