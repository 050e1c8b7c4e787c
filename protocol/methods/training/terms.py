"""Method training: DP-SGD on a network at every owner, with weights averaged between rounds.

Weights travel as one row of float32 numbers (`confide.protocol.architectures.base`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from google.protobuf.message import Message

from confide.protocol.architectures.base import Span, check_span
from confide.protocol.errors import BadInput, check_delta, check_probability
from confide.protocol.exact.lattice import MOST_BATCH
from confide.protocol.methods.base import (
    Explanation,
)
from confide.protocol.methods.training.network_terms import NetworkTerms, described
from confide.protocol.methods.training.noised_errors import (
    check_loss,
    explained,
    loss_epsilon,
    loss_noise,
)
from confide.protocol.methods.training.query import TrainingQuery, finite_weights
from confide.protocol.methods.training.rule import by_the_rule
from confide.protocol.privacy.renyi import (
    LEAST_NOISE,
    MOST_NOISE,
    training_epsilon,
    training_noise,
)
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import F4
from confide.protocol.wire.encoding import parse

# The label of all noise in training.
NOISE = "discrete Gaussian on integers"

MOST_STEPS = 1 << 20
# Multiplications a record times steps of a round: a few minutes of an owner's computing time.
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
    "momentum": (0.0, 0.99),
    "centre": (0.0, 1.0),
}


def check_limit(name: str, value: float) -> None:
    """Accept a number of a training that lies within its limits; NaN does not."""
    least, most = LIMITS[name]
    if not least <= value <= most:
        raise BadInput(f"{name} is {value!r}; accepted is {least:g} to {most:g}")


@dataclass(frozen=True, kw_only=True)
class TrainingTerms(NetworkTerms):
    """The public numbers of a federated training.

    A step divides its noisy sum by `batch`, a public number. An owner rounds `sampling_rate` down
    to 32 bits. The aggregator repeats `momentum` times a round's movement in the next one, and
    averages the common weights of the last `averaged_rounds`. `loss_share` of epsilon and delta
    pays for noised numbers of wrong predictions, and the rest for the steps.

    A network of labels learns by cross-entropy. One of numbers has one output and learns by squared
    error; targets are clipped to `target_low` and `target_high`, public numbers, both 0 for labels.
    """

    variant: str = "federated-averaging"
    privacy_delta: float = 0.0
    noise_multiplier: float
    sampling_rate: float
    rounds: int = 0
    local_steps: int
    clip: float
    batch: float
    learning_rate: float
    momentum: float = 0.0
    averaged_rounds: int = 1
    loss_share: float = 0.0
    loss_noise: float = 0.0
    target_low: float = 0.0
    target_high: float = 0.0

    method: ClassVar[str] = "training"
    variants: ClassVar[tuple[str, ...]] = ("federated-averaging",)
    message: ClassVar[type[Message]] = wire.TrainingTerms
    track: ClassVar[str] = ""
    trains: ClassVar[bool] = True
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        "privacy-delta": (),
        "architecture": (),
        "features": (),
        "rounds": (),
        "local-steps": (),
        "sampling-rate": (),
        "clip": (),
        "batch": (),
        "learning-rate": (),
        "momentum": (),
        "averaged-rounds": (),
        "centre": (),
        "loss-share": (),
        "target-low": (),
        "target-high": (),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_delta(self.privacy_delta)
        check_probability("privacy_delta", self.privacy_delta)
        work = self.check_network()
        for name in LIMITS:
            check_limit(name, getattr(self, name))
        if not 1 <= self.averaged_rounds <= self.rounds:
            raise BadInput(
                f"averaged_rounds is {self.averaged_rounds} of {self.rounds} rounds; accepted is 1 "
                "to all of them"
            )
        if work * self.local_steps > MOST_WORK:
            raise BadInput(
                f"{self.local_steps} steps of {work} multiplications a record; accepted are "
                f"{MOST_WORK} in all steps of a round"
            )
        if self.rounds * self.local_steps > MOST_STEPS:
            raise BadInput(
                f"{self.rounds} rounds of {self.local_steps} steps; accepted are 1 to {MOST_STEPS} "
                "steps in all"
            )
        check_loss(share=self.loss_share, noise=self.loss_noise)
        if self.loss_share and self.span is not None:
            raise BadInput(
                f"loss_share is {self.loss_share} and the network learns numbers, which are never "
                "exactly right; accepted is 0"
            )
        spent = self.spent(self.privacy_delta)
        if spent > self.epsilon:
            raise BadInput(
                f"{self.rounds * self.local_steps} steps with noise multiplier "
                f"{self.noise_multiplier} cost epsilon {spent:.6g} at delta {self.privacy_delta}; "
                f"the plan says {self.epsilon}"
            )

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """Make terms with the least noise that fits the budget.

        All rounds together stay within (epsilon, privacy-delta), replace-one. A batch or learning
        rate `auto` follows the rule, for the `expected` records of all `owners`.
        """
        rounds, local = int(settings["rounds"]), int(settings["local-steps"])
        epsilon = float(settings.get("training-epsilon") or settings["epsilon"])
        delta = float(settings["privacy-delta"])
        rate, share = float(settings["sampling-rate"]), float(settings.get("loss-share", 0.0))
        network = described(
            str(settings["architecture"]),
            features=int(settings["features"]),
            outputs=int(settings["labels"]) or 1,
        )
        noise = training_noise(
            epsilon=(1 - share) * epsilon,
            delta=(1 - share) * delta,
            sampling_rate=rate,
            steps=rounds * local,
        )
        return cls(
            variant=variant,
            epsilon=epsilon,
            privacy_delta=delta,
            **network,
            noise_multiplier=noise,
            sampling_rate=rate,
            rounds=rounds,
            local_steps=local,
            clip=float(settings["clip"]),
            **by_the_rule(settings, noise_multiplier=noise, size=network["size"]),
            momentum=float(settings["momentum"]),
            averaged_rounds=int(settings["averaged-rounds"]),
            centre=float(settings["centre"]),
            loss_share=share,
            loss_noise=loss_noise(epsilon=share * epsilon, delta=share * delta, rounds=rounds),
            target_low=float(settings.get("target-low", 0.0)),
            target_high=float(settings.get("target-high", 0.0)),
        )

    @property
    def span(self) -> Span | None:
        """The public range of targets; None for labels."""
        return (self.target_low, self.target_high) if self.target_low < self.target_high else None

    def check(self, *, labels: int, alpha: float) -> None:
        check_span(self.target_low, self.target_high, labels=labels)
        if not labels and self.outputs == 1:
            return
        if self.outputs != labels:
            raise BadInput(
                f"the network has {self.outputs} outputs and labels are {labels}; accepted is one "
                "output a label"
            )

    @property
    def answer_bytes(self) -> int:
        # Two numbers of up to ten bytes and their tags come with a loss.
        return F4.itemsize * self.size + (22 if self.loss_share else 0)

    def read_query(self, body: bytes, *, labels: int) -> TrainingQuery:
        return TrainingQuery(
            self, finite_weights(parse(wire.TrainingQuery, body).weights, self.size)
        )

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        return Explanation(
            self.epsilon,
            "trains a model",
            f"Up to {self.rounds} times leave the {self.size} weights of the network "
            f"{self.architecture} {self.arguments} after {self.local_steps} "
            f"{'step' if self.local_steps == 1 else 'steps'} of DP-SGD on your records: each step "
            f"sees about {self.sampling_rate:.1%} of them, and adds noise of "
            f"{self.noise_multiplier:.2f} times the most that one record can change.",
            (
                "This counts all rounds, whether you answer them or not.",
                *explained(share=self.loss_share, noise=self.loss_noise),
            ),
        )

    def spent(self, delta: float) -> float:
        """Return what all rounds cost a record that is replaced by another, rounded up.

        Owners hold disjoint records, so this is also the privacy cost of the model. A loss is
        added (basic composition), at its share of delta.
        """
        steps = training_epsilon(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
            steps=self.rounds * self.local_steps,
            delta=(1 - self.loss_share) * delta,
        )
        return steps + self.spent_on_loss(delta)

    def spent_on_loss(self, delta: float) -> float:
        """Return the part of `spent` that pays for noised losses."""
        own = self.loss_share * delta
        return loss_epsilon(noise=self.loss_noise, rounds=self.rounds, delta=own) if own else 0.0
