"""Training by one owner alone: a network, and the records that pay for it.

Everybody knows the numbers of a training here but the records. Weights that are written can leave
this machine without any command being asked, so their privacy loss is charged when they are
written, in replace-one adjacency like all charges of an owner. Until then nothing has left, and
nothing is charged: a training that is killed, interrupted or fails costs nothing, and its
checkpoint, which holds the key of the noise, is the owner's secret.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from confide.client.records.records import Records
from confide.client.training.checkpoint import about
from confide.client.training.computing import Computing
from confide.client.training.descent import Schedule
from confide.client.training.networks import cross_entropy_loss, load_weights, squared_loss
from confide.client.training.private_training import train as train_privately
from confide.client.training.weights_file import pack_weights, weights_of
from confide.protocol.architectures.base import (
    Network,
    Span,
    Weights,
    canonical,
    check_span,
    scaled,
    shares,
)
from confide.protocol.architectures.export import to_onnx, with_range
from confide.protocol.architectures.factories import is_factory, source_digest
from confide.protocol.architectures.registry import open_network, read_architecture
from confide.protocol.commands.terminal import printable
from confide.protocol.errors import BadInput, check_epsilon, check_probability
from confide.protocol.exact.lattice import MOST_WEIGHTS
from confide.protocol.methods.training.terms import LIMITS, MOST_STEPS, check_limit
from confide.protocol.models.model_file import Model
from confide.protocol.privacy.renyi import REPLACE_ONE, training_epsilon, training_noise

_UNIT = (0.0, 1.0)
_LONGEST_ERROR = 300


@dataclass(frozen=True, kw_only=True)
class OwnTraining:
    """The public numbers of a training, among them the limits that features are clipped to.

    The network is described as in a plan (`confide.protocol.methods.training.terms.TrainingTerms`).
    Features between `low` and `high` become numbers between 0 and 1, of which the network sees
    `centre` as 0. (epsilon, delta) is the most that a record may lose. Without a noise multiplier
    the noise is the least with which all epochs fit; with one, training ends before the step that
    would not fit.

    A network of numbers has one output and no labels; its targets are clipped to those from
    `target_low` to `target_high`, which are public.
    """

    architecture: str
    arguments: str = "{}"
    source: bytes = b""
    features: int
    outputs: int
    epsilon: float
    delta: float
    epochs: float
    batch: int
    rate: float
    clip: float
    noise_multiplier: float | None = None
    low: float = 0.0
    high: float = 1.0
    centre: float = 0.5
    target_low: float = 0.0
    target_high: float = 0.0

    @classmethod
    def of(cls, architecture: str, **numbers: Any) -> Self:
        """Make a training of a network that is described as an operator writes it.

        A factory is the owner's own choice of code here, so the code that is installed is taken.
        """
        name, arguments = read_architecture(architecture)
        source = source_digest(name) if is_factory(name) else b""
        return cls(architecture=name, arguments=canonical(arguments), source=source, **numbers)

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_probability("delta", self.delta)
        if self.span is not None:
            check_span(self.target_low, self.target_high, labels=0)
        if self.outputs < 1 or (self.span is not None and self.outputs != 1):
            raise BadInput(
                f"labels are {self.outputs}; accepted is at least 1, or a range of targets for "
                "numbers"
            )
        for name, value in (("batch", self.batch), ("learning_rate", self.rate)):
            check_limit(name, value)
        check_limit("clip", self.clip)
        check_limit("centre", self.centre)
        if self.noise_multiplier is not None:
            check_limit("noise_multiplier", self.noise_multiplier)
        if not 0 < self.epochs < math.inf:
            raise BadInput(f"epochs is {self.epochs!r}; accepted is a finite number above 0")
        if not (-math.inf < self.low < self.high < math.inf and self.high - self.low < math.inf):
            raise BadInput(
                f"features run from {self.low} to {self.high}; accepted are finite numbers in "
                "order, at a finite distance"
            )

    @property
    def span(self) -> Span | None:
        """The range of targets of a network of numbers; None for one of labels."""
        span = self.target_low, self.target_high
        return None if span == (0.0, 0.0) else span

    def network(self) -> Network:
        """Return the network; that of a factory is imported if its files are still the same."""
        return open_network(
            self.architecture,
            self.arguments,
            source=self.source,
            features=self.features,
            outputs=self.outputs,
        )

    def check(self, truth: NDArray[Any]) -> None:
        """Accept labels or targets, and a network that can be trained and written as a model."""
        self._check_truth(truth)
        try:
            network = self.network()
            if network.size > MOST_WEIGHTS:
                raise BadInput(
                    f"the network has {network.size} weights; accepted are at most {MOST_WEIGHTS}"
                )
            session = Model.of(self.model(network.first_weights())).open("the network's ONNX file")
            session.accept((self.features,), self.outputs)
        except BadInput:
            raise
        except Exception as error:  # a factory and torch's exporter raise errors of any class
            said = printable(str(error))[:_LONGEST_ERROR]
            raise BadInput(
                f"{self.architecture} fails with {type(error).__name__}: {said}; accepted is a "
                "network that torch can make and write as ONNX"
            ) from error

    def _check_truth(self, truth: NDArray[Any]) -> None:
        numbers = truth.dtype.kind == "f"
        if numbers != (self.span is not None):
            held = "targets, which are numbers" if numbers else "labels"
            asked = "a range of targets" if numbers else "a number of labels"
            raise BadInput(f"the records hold {held}; accepted is a training with {asked}")
        if not numbers and not 0 <= int(truth.min()) <= int(truth.max()) < self.outputs:
            raise BadInput(
                f"labels run from {truth.min()} to {truth.max()} and the network has "
                f"{self.outputs} outputs; accepted are labels from 0 to {self.outputs - 1}"
            )

    @property
    def settings(self) -> str:
        """All public numbers of this training, as text."""
        values = asdict(self) | {"source": self.source.hex()}
        if self.span is None:
            del values["target_low"], values["target_high"]
        return json.dumps(values)

    def digest(self, records: Records) -> bytes:
        """A name for this training on these records: the same again is not charged again."""
        names = np.frombuffer(b"\0".join(records.names), dtype=np.uint8)
        assert records.features is not None
        settings = f"own training {self.settings}"
        return bytes.fromhex(about(settings, names, records.features, records.truth))

    def schedule(self, n: int) -> tuple[Schedule, int]:
        """The schedule for n records within the budget, and how many steps were asked for."""
        rate = max(min(1.0, self.batch / n), LIMITS["sampling_rate"][0])
        asked = max(1, round(min(self.epochs / rate, 2.0 * MOST_STEPS)))
        if asked > MOST_STEPS:
            raise BadInput(
                f"{self.epochs:g} epochs in batches of {self.batch} are {asked} steps or more; "
                f"accepted are at most {MOST_STEPS}"
            )
        if self.noise_multiplier is None:
            noise = training_noise(
                epsilon=self.epsilon, delta=self.delta, sampling_rate=rate, steps=asked
            )
            steps = asked
        else:
            noise = self.noise_multiplier
            steps = self._affordable(noise, rate, most=asked)
        return Schedule(noise, rate, steps, self.clip, float(min(self.batch, n))), asked

    def _affordable(self, noise: float, rate: float, *, most: int) -> int:
        """The most steps within the budget."""

        def fits(steps: int) -> bool:
            return self.spent(Schedule(noise, rate, steps, self.clip, 1.0)) <= self.epsilon

        if not fits(1):
            raise BadInput(
                f"one step with noise multiplier {noise} costs more than epsilon {self.epsilon} at "
                f"delta {self.delta}; accepted is more noise, or a larger budget"
            )
        low, high = 1, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def spent(self, schedule: Schedule) -> float:
        """The epsilon of a schedule at this delta, one record replaced."""
        return training_epsilon(
            noise_multiplier=schedule.noise_multiplier,
            sampling_rate=schedule.sampling_rate,
            steps=schedule.steps,
            delta=self.delta,
        )

    def train(
        self,
        records: Records,
        rows: NDArray[np.int64],
        *,
        checkpoint: Path,
        every: int,
        computing: Computing,
        progress: Callable[[int, int], None],
    ) -> bytes:
        """Train on these rows, from the checkpoint if there is one; return the file of weights."""
        assert records.features is not None
        schedule, asked = self.schedule(len(rows))
        network, span = self.network(), self.span
        module = network.module().float()
        load_weights(module, network, network.first_weights())
        trained = train_privately(
            module,
            self.seen(records.features[rows]),
            records.truth[rows] if span is None else shares(records.truth[rows], span),
            loss=cross_entropy_loss if span is None else squared_loss,
            schedule=schedule,
            optimizer=lambda parameters: torch.optim.Adam(parameters, lr=self.rate),
            device=computing.device,
            engine=computing.engine,
            checkpoint=checkpoint,
            settings=self.settings,
            every=every,
            progress=progress,
        )
        described = self._described(schedule) | {
            "steps_asked": asked,
            "noise": trained.noise,
            "randomness": trained.randomness,
        }
        weights = weights_of(trained.model, network.shapes)
        # Weights that make no model are found before they are charged.
        self.model(weights)
        return pack_weights(weights, network.shapes, about=described)

    def seen(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Return features as the network sees them."""
        clipped = np.clip(features.astype(np.float64), self.low, self.high)
        return scaled((clipped - self.low) / (self.high - self.low), self.centre)

    def model(self, weights: Weights) -> bytes:
        """Return the ONNX file of the network, which takes features as they are in the records."""
        file = to_onnx(self.network(), weights, centre=self.centre, span=self.span)
        if (self.low, self.high) == _UNIT:
            return file
        return with_range(file, low=self.low, high=self.high)

    def _described(self, schedule: Schedule) -> dict[str, Any]:
        return {
            "architecture": self.architecture,
            "arguments": json.loads(self.arguments),
            "source": self.source.hex(),
            "features": self.features,
            **({"labels": self.outputs} if self.span is None else {"target_range": self.span}),
            "feature_range": [self.low, self.high],
            "centre": self.centre,
            "adjacency": REPLACE_ONE,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "epsilon_of_steps": self.spent(schedule),
            "schedule": asdict(schedule),
            "learning_rate": self.rate,
        }
