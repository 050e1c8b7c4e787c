"""Method training: DP-SGD on linear layers at every owner, with weights averaged between rounds.

Weights travel as one row of float32 numbers: for each layer its matrix, output by output, then its
biases.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from confide.protocol.errors import BadInput, Refused, check_probability
from confide.protocol.exact.lattice import MOST_BATCH, MOST_WEIGHTS
from confide.protocol.methods.base import (
    Batch,
    Columns,
    Explanation,
    Subjects,
    Terms,
    WholeQuery,
)
from confide.protocol.methods.central import check_delta
from confide.protocol.methods.mean_weights import TrainingTally, packed
from confide.protocol.privacy.renyi import (
    LEAST_NOISE,
    MOST_NOISE,
    training_epsilon,
    training_noise,
)
from confide.protocol.scores.base import Score
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import F4, column
from confide.protocol.wire.encoding import parse, serialise

Weights = NDArray[np.float32]

# The label of all noise in training.
NOISE = "discrete Gaussian on integers"

# An owner keeps its weights within +-WEIGHT_BOUND, and multiplies and adds them without rounding: a
# layer of 2^17 or more would leave fewer than 16 bits of a value for that. An owner holds one
# number of every layer for at least 256 records at a time, so the sum of the widths is bounded too,
# which bounds each of them.
WEIGHT_BOUND = 32.0
MOST_WIDTHS = 1 << 17
MOST_LAYERS = 16
MOST_STEPS = 1 << 20
# Weights times steps of a round: a few minutes of an owner's computing time.
MOST_WORK = 1 << 29

# Within these limits every step is exact or has a proved error, no update overflows, and the
# privacy cost of a plan is computed in milliseconds.
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
    """Accept a number of a training that lies within its limits; NaN does not."""
    least, most = LIMITS[name]
    if not least <= value <= most:
        raise BadInput(f"{name} is {value!r}; accepted is {least:g} to {most:g}")


@dataclass(frozen=True, eq=False)
class TrainingQuery(WholeQuery):
    """Ask every owner to continue from these weights for its steps of the round."""

    terms: "TrainingTerms"
    weights: Weights

    def to_body(self) -> bytes:
        return serialise(wire.TrainingQuery(weights=packed(self.weights)))

    def answer(self, subjects: Subjects) -> Columns:
        return {"weights": subjects.train(self.terms, self.weights)}

    def pack(self, columns: Columns) -> bytes:
        return serialise(wire.Weights(weights=packed(columns["weights"])))

    def check(self, body: bytes, n: int, *, most: int) -> None:
        weights = _finite(parse(wire.Weights, body).weights, self.terms.size)
        # No owner's steps leave this range, so a single owner moves the mean by little.
        if np.abs(weights).max() > WEIGHT_BOUND:
            raise Refused(wire.Code.OUT_OF_ALPHABET)

    def unpack(self, body: bytes, n: int) -> Columns:
        message = wire.Weights.FromString(body)
        return {"weights": np.frombuffer(message.weights, dtype=F4)[None, :]}

    def tally(self, batches: Sequence[Batch], score: Score) -> TrainingTally:
        return TrainingTally.of(batch.columns["weights"][0] for batch in batches)

    def tally_from_bytes(self, data: bytes) -> TrainingTally:
        return TrainingTally.from_bytes(data)


def _finite(data: bytes, size: int) -> Weights:
    weights: Weights = column(data, F4, size)
    if not np.isfinite(weights).all():
        raise Refused(wire.Code.OUT_OF_ALPHABET)
    return weights


@dataclass(frozen=True, kw_only=True)
class TrainingTerms(Terms):
    """The public numbers of a federated training.

    `layers` are the widths from features to labels, with ReLU between them. A step divides its
    noisy sum by `batch`, a public number; features are clipped to [0, 1], the public bounds of the
    plan. An owner rounds `sampling_rate` down to 32 bits.
    """

    variant: str = "federated-averaging"
    privacy_delta: float = 0.0
    layers: tuple[int, ...]
    noise_multiplier: float
    sampling_rate: float
    rounds: int = 0
    local_steps: int
    clip: float
    batch: float
    learning_rate: float

    method: ClassVar[str] = "training"
    variants: ClassVar[tuple[str, ...]] = ("federated-averaging",)
    message: ClassVar[type[Message]] = wire.TrainingTerms
    track: ClassVar[str | None] = None
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        "privacy-delta": (),
        "layers": (),
        "rounds": (),
        "local-steps": (),
        "sampling-rate": (),
        "clip": (),
        "batch": (),
        "learning-rate": (),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_delta(self.privacy_delta)
        check_probability("privacy_delta", self.privacy_delta)
        self._check_layers()
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
        spent = self.spent(self.privacy_delta)
        if spent > self.epsilon:
            raise BadInput(
                f"{self.rounds * self.local_steps} steps with noise multiplier "
                f"{self.noise_multiplier} cost epsilon {spent:.6g} at delta {self.privacy_delta}; "
                f"the plan says {self.epsilon}"
            )

    def _check_layers(self) -> None:
        if not (
            2 <= len(self.layers) <= MOST_LAYERS
            and min(self.layers) >= 1
            and sum(self.layers) <= MOST_WIDTHS
        ):
            raise BadInput(
                f"layers are {self.layers[:MOST_LAYERS]}, {len(self.layers)} in all; accepted are "
                f"2 to {MOST_LAYERS} widths of at least 1, and of at most {MOST_WIDTHS} together"
            )
        if self.size > MOST_WEIGHTS:
            raise BadInput(
                f"layers {self.layers} have {self.size} weights; accepted are at most "
                f"{MOST_WEIGHTS}"
            )

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """Make terms with the least noise that fits the budget.

        All rounds together stay within (epsilon, privacy-delta), replace-one.
        """
        rounds, local = int(settings["rounds"]), int(settings["local-steps"])
        epsilon, delta = float(settings["epsilon"]), float(settings["privacy-delta"])
        rate = float(settings["sampling-rate"])
        return cls(
            variant=variant,
            epsilon=epsilon,
            privacy_delta=delta,
            layers=tuple(int(width) for width in str(settings["layers"]).split()),
            noise_multiplier=training_noise(
                epsilon=epsilon, delta=delta, sampling_rate=rate, steps=rounds * local
            ),
            sampling_rate=rate,
            rounds=rounds,
            local_steps=local,
            clip=float(settings["clip"]),
            batch=float(settings["batch"]),
            learning_rate=float(settings["learning-rate"]),
        )

    def check(self, *, labels: int, alpha: float) -> None:
        if self.layers[-1] != labels:
            raise BadInput(
                f"layers end in {self.layers[-1]} and labels are {labels}; the last layer must "
                "have them all"
            )

    @property
    def features(self) -> int | None:
        return self.layers[0]

    @property
    def answer_bytes(self) -> int:
        return F4.itemsize * self.size

    def read_query(self, body: bytes, *, labels: int) -> TrainingQuery:
        return TrainingQuery(self, _finite(parse(wire.TrainingQuery, body).weights, self.size))

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        return Explanation(
            self.epsilon,
            "trains a model",
            f"Up to {self.rounds} times leave the weights of a model after {self.local_steps} "
            f"steps of DP-SGD on your records: each step sees about {self.sampling_rate:.1%} of "
            f"them, and adds noise of {self.noise_multiplier:.2f} times the most that one record "
            "can change.",
        )

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(inputs * outputs + outputs for inputs, outputs in self.shapes)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The inputs and outputs of every layer."""
        return list(zip(self.layers, self.layers[1:], strict=False))

    def spent(self, delta: float) -> float:
        """Return what all rounds cost a record that is replaced by another, rounded up.

        Owners hold disjoint records, so this is also the privacy cost of the model.
        """
        return training_epsilon(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
            steps=self.rounds * self.local_steps,
            delta=delta,
        )


def split(
    terms: TrainingTerms, weights: NDArray[Any]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Return the matrix (outputs, inputs) and biases of every layer."""
    start = 0
    for inputs, outputs in terms.shapes:
        end = start + inputs * outputs
        yield weights[start:end].reshape(outputs, inputs), weights[end : end + outputs]
        start = end + outputs


def first_weights(terms: TrainingTerms) -> Weights:
    """Return the initial weights: a public draw, the same for everybody.

    The draw is uniform, scaled by the width of each layer.
    """
    rng = np.random.default_rng(list(terms.layers))
    parts: list[Any] = []
    for inputs, outputs in terms.shapes:
        bound = 1 / math.sqrt(inputs)
        parts += [rng.uniform(-bound, bound, inputs * outputs), np.zeros(outputs)]
    return np.concatenate(parts).astype(np.float32)


def predict(terms: TrainingTerms, weights: Weights, features: NDArray[Any]) -> NDArray[np.float64]:
    """Return class probabilities."""
    values = np.clip(np.asarray(features, dtype=np.float64), 0, 1)
    layers = list(split(terms, weights))
    for place, (matrix, bias) in enumerate(layers):
        values = values @ matrix.T.astype(np.float64) + bias
        if place < len(layers) - 1:
            values = np.maximum(values, 0)
    odds = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
