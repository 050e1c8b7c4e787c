"""What a plan says of federated training: a stack of linear layers, DP-SGD at every owner, weights averaged between rounds.

Weights travel as float32 numbers in a row: of each layer its matrix, output by output, then its biases.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import BadInput
from protocol.mechanisms import SampledGaussian
from protocol.profile import Profile

Weights = NDArray[np.float32]

MOST_WEIGHTS = 4_000_000
# With less no epsilon worth stating comes out, and what it costs takes long to compute.
LEAST_NOISE = 0.2


@dataclass(frozen=True)
class Terms:
    """The public numbers of a federated training; `layers` are the widths from features to labels, with ReLU between them.

    A step divides its noisy sum by `batch`, a public number; features are clipped to [0, 1], the public bounds of the plan.
    """

    layers: tuple[int, ...]
    noise_multiplier: float
    sampling_rate: float
    rounds: int
    local_steps: int
    clip: float
    batch: float
    learning_rate: float

    def __post_init__(self) -> None:
        if len(self.layers) < 2 or not all(width >= 1 for width in self.layers) or self.size > MOST_WEIGHTS:
            raise BadInput(f"layers are {self.layers}; accepted are two or more widths with at most {MOST_WEIGHTS} weights")
        if not 1 <= self.rounds * self.local_steps <= 1 << 20:
            raise BadInput(f"{self.rounds} rounds of {self.local_steps} steps; accepted are 1 to {1 << 20} steps in all")
        if not self.noise_multiplier >= LEAST_NOISE:
            raise BadInput(f"noise_multiplier is {self.noise_multiplier!r}; accepted is {LEAST_NOISE} or more")
        for name in ("clip", "batch", "learning_rate"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise BadInput(f"{name} is {getattr(self, name)!r}; it must be a finite number above 0")
        self.mechanism()

    @property
    def size(self) -> int:
        """How many weights there are."""
        return sum(inputs * outputs + outputs for inputs, outputs in self.shapes)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of every layer."""
        return list(zip(self.layers, self.layers[1:], strict=False))

    def mechanism(self) -> SampledGaussian:
        return SampledGaussian(self.noise_multiplier, self.sampling_rate, self.rounds * self.local_steps)

    def profile(self) -> Profile:
        """What all rounds cost a record of an owner; owners hold disjoint records, so it is what the model costs too."""
        return Profile().then(self.mechanism())


def split(terms: Terms, weights: Weights) -> Iterator[tuple[Weights, Weights]]:
    """The matrix (outputs, inputs) and biases of every layer."""
    start = 0
    for inputs, outputs in terms.shapes:
        end = start + inputs * outputs
        yield weights[start:end].reshape(outputs, inputs), weights[end : end + outputs]
        start = end + outputs


def first_weights(terms: Terms) -> Weights:
    """Where training starts: a public draw (uniform, by the width of each layer), the same for everybody."""
    rng = np.random.default_rng(list(terms.layers))
    parts: list[Any] = []
    for inputs, outputs in terms.shapes:
        bound = 1 / math.sqrt(inputs)
        parts += [rng.uniform(-bound, bound, inputs * outputs), np.zeros(outputs)]
    return np.concatenate(parts).astype(np.float32)


def predict(terms: Terms, weights: Weights, features: NDArray[Any]) -> NDArray[np.float64]:
    """Class probabilities."""
    values = np.clip(np.asarray(features, dtype=np.float64), 0, 1)
    layers = list(split(terms, weights))
    for place, (matrix, bias) in enumerate(layers):
        values = values @ matrix.T.astype(np.float64) + bias
        if place < len(layers) - 1:
            values = np.maximum(values, 0)
    odds = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
