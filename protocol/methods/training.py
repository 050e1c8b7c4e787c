"""What a plan says of federated training: a stack of linear layers, DP-SGD at every owner, weights
averaged between rounds.

Weights travel as float32 numbers in a row: of each layer its matrix, output by output, then its
biases.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import MOST_BATCH, MOST_WEIGHTS
from confide.protocol.privacy.renyi import LEAST_NOISE, MOST_NOISE, training_epsilon

Weights = NDArray[np.float32]

# The label of all noise in training.
NOISE = "discrete Gaussian on integers"

# An owner keeps its weights within +-WEIGHT_BOUND, and multiplies and adds them without rounding:
# with a layer of 2^17 or more fewer than 16 bits of a value would be left for that. It holds a
# number of every layer for at least 256 records at a time, so the sum of the widths is bounded too,
# which bounds each of them.
WEIGHT_BOUND = 32.0
MOST_WIDTHS = 1 << 17
MOST_LAYERS = 16
MOST_STEPS = 1 << 20
# Weights times steps of a round: some minutes of an owner's time.
MOST_WORK = 1 << 29

# Within these every step is exact or its error proved, no update overflows, and what a plan costs
# is computed in milliseconds.
LIMITS: dict[str, tuple[float, float]] = {
    "noise_multiplier": (LEAST_NOISE, MOST_NOISE),
    "sampling_rate": (1e-6, 1.0),
    "rounds": (1, 10_000),
    "local_steps": (1, 1_000),
    "clip": (1e-6, 1e6),
    "batch": (1.0, float(MOST_BATCH)),
    "learning_rate": (1e-6, 1e3),
}


def check_limit(name: str, value: float) -> None:
    """Accept a number of a training that lies within its limits; what is no number does not."""
    least, most = LIMITS[name]
    if not least <= value <= most:
        raise BadInput(f"{name} is {value!r}; accepted is {least:g} to {most:g}")


@dataclass(frozen=True)
class Terms:
    """The public numbers of a federated training; `layers` are the widths from features to labels,
    with ReLU between them.

    A step divides its noisy sum by `batch`, a public number; features are clipped to [0, 1], the
    public bounds of the plan. An owner rounds `sampling_rate` down to 32 bits.
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
        if not (
            2 <= len(self.layers) <= MOST_LAYERS
            and min(self.layers) >= 1
            and sum(self.layers) <= MOST_WIDTHS
        ):
            raise BadInput(
                f"layers are {self.layers[:MOST_LAYERS]}, {len(self.layers)} in all; accepted are "
                f"2 to {MOST_LAYERS} widths of "
                f"at least 1, and of at most {MOST_WIDTHS} together"
            )
        if self.size > MOST_WEIGHTS:
            raise BadInput(
                f"layers {self.layers} have {self.size} weights; accepted are at most "
                f"{MOST_WEIGHTS}"
            )
        for name in LIMITS:
            check_limit(name, getattr(self, name))
        if self.size * self.local_steps > MOST_WORK:
            raise BadInput(
                f"{self.local_steps} steps of {self.size} weights a round; accepted are "
                f"{MOST_WORK} in all steps"
            )
        if self.rounds * self.local_steps > MOST_STEPS:
            raise BadInput(
                f"{self.rounds} rounds of {self.local_steps} steps; accepted are 1 to {MOST_STEPS} "
                "steps in all"
            )

    @property
    def size(self) -> int:
        """How many weights there are."""
        return sum(inputs * outputs + outputs for inputs, outputs in self.shapes)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of every layer."""
        return list(zip(self.layers, self.layers[1:], strict=False))

    def epsilon(self, delta: float) -> float:
        """What all rounds cost a record of an owner when it is replaced by another, rounded up.

        Owners hold disjoint records, so it is what the model costs too.
        """
        return training_epsilon(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
            steps=self.rounds * self.local_steps,
            delta=delta,
        )


def split(terms: Terms, weights: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The matrix (outputs, inputs) and biases of every layer."""
    start = 0
    for inputs, outputs in terms.shapes:
        end = start + inputs * outputs
        yield weights[start:end].reshape(outputs, inputs), weights[end : end + outputs]
        start = end + outputs


def first_weights(terms: Terms) -> Weights:
    """Where training starts: a public draw (uniform, by the width of each layer), the same for
    everybody."""
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
