"""Made-up classifiers: exact class probabilities, as hard to predict as a table says."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from confide.simulation.data.population import Predictions

Floats = NDArray[np.float64]

_HALVINGS, _TRIED = 14, 20_000


def classifier(*, n: int, k: int, size: float, seed: int) -> Predictions:
    """Records of k labels on which 90 % HPS sets have this mean size.

    A record of label y has k normal numbers of mean 0, but for number y of mean s. Its class
    probabilities, softmax of s times the numbers, are exact. The larger s, the smaller the sets.
    """
    low, high = 0.0, 10.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        probs, labels = _drawn(_TRIED, k, rng=np.random.default_rng([seed, 0]), strength=middle)
        q = np.quantile(1 - probs[np.arange(_TRIED), labels], 0.9)
        low, high = (
            (middle, high) if np.mean((1 - probs <= q).sum(axis=1)) > size else (low, middle)
        )
    probs, labels = _drawn(n, k, rng=np.random.default_rng([seed, 1]), strength=low)
    return Predictions(f"made-up classifier of {k} labels", probs, labels)


def _drawn(
    n: int, k: int, *, rng: np.random.Generator, strength: float
) -> tuple[Floats, NDArray[np.int64]]:
    labels = rng.integers(0, k, n)
    numbers = rng.normal(size=(n, k))
    numbers[np.arange(n), labels] += strength
    return softmax(strength * numbers, axis=1), labels
