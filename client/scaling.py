"""Features on a common scale, by public bounds or by statistics that are released privately and charged for."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client.chance import gaussian
from protocol.errors import BadInput
from protocol.mechanisms import Gaussian
from protocol.sampling import Entropy, os_entropy

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scaling:
    """Clip to public bounds, then (x - centre) / width; ships with the model, so it must be public or private itself."""

    low: Array
    high: Array
    centre: Array
    width: Array

    def __call__(self, features: NDArray[Any]) -> Array:
        return np.asarray((np.clip(features, self.low, self.high) - self.centre) / self.width)


def public_scaling(low: Any, high: Any) -> Scaling:
    """Bounds known without the records, a number or one a feature, mapped to [-1, 1]."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise BadInput("bounds are not finite or not in order; accepted is low < high for every feature")
    return Scaling(low, high, (low + high) / 2, (high - low) / 2)


def private_scaling(
    features: NDArray[Any], bounds: Scaling, *, mu: float, entropy: Entropy = os_entropy
) -> tuple[Scaling, Gaussian]:
    """Mean and standard deviation of every feature by one Gaussian release, and that release to charge for.

    A record adds (1, z, z^2) to the sums, z its d features scaled to [-1, 1]: L2 sensitivity sqrt(2d + 1) under add-remove,
    the number of records included. Noise is floating-point.
    """
    cost = Gaussian(mu)
    z = bounds(features)
    d = z.shape[1]
    sums = np.concatenate([[len(z)], z.sum(axis=0), np.square(z).sum(axis=0)])
    noisy = sums + math.sqrt(2 * d + 1) / mu * gaussian(2 * d + 1, entropy)
    n = max(noisy[0], 1.0)
    mean = np.clip(noisy[1 : d + 1] / n, -1.0, 1.0)
    # A spread below a hundredth of the bounds cannot be told from noise, and dividing by it would blow features up.
    spread = np.sqrt(np.clip(noisy[d + 1 :] / n - mean**2, 1e-4, 1.0))
    return Scaling(bounds.low, bounds.high, bounds.centre + bounds.width * mean, bounds.width * spread), cost
