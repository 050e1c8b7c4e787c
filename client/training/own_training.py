"""Training by one owner alone: layers of a network, the records that pay for them, and the file.

Everybody knows the numbers of a training here but the records. Weights that are written can leave
this machine without any command being asked, so their privacy loss is charged when they are
written, in replace-one adjacency like all charges of an owner. Until then nothing has left, and
nothing is charged: a training that is killed, interrupted or fails costs nothing, and its
checkpoint, which holds the key of the noise, is the owner's secret.
"""

import hashlib
import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.records.records import Records
from confide.client.training.checkpoint import about
from confide.client.training.descent import Schedule
from confide.client.training.private_training import Trained
from confide.client.training.private_training import train as train_privately
from confide.protocol.architectures.base import MOST_UNITS
from confide.protocol.architectures.stacks import MOST_HIDDEN
from confide.protocol.errors import BadInput, check_epsilon, check_probability
from confide.protocol.exact.lattice import MOST_WEIGHTS
from confide.protocol.methods.training import LIMITS, MOST_STEPS, check_limit
from confide.protocol.privacy.renyi import REPLACE_ONE, training_epsilon, training_noise

# With features and labels.
MOST_WIDTHS = MOST_HIDDEN + 2


@dataclass(frozen=True, kw_only=True)
class OwnTraining:
    """The public numbers of a training, among them the limits that features are clipped to.

    Features between `low` and `high` become numbers between 0 and 1. (epsilon, delta) is the most
    that a record may lose. Without a noise multiplier the noise is the least with which all epochs
    fit; with one, training ends before the step that would not fit.
    """

    layers: tuple[int, ...]
    epsilon: float
    delta: float
    epochs: float
    batch: int
    rate: float
    clip: float
    noise_multiplier: float | None = None
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_probability("delta", self.delta)
        widths = self.layers
        if not (2 <= len(widths) <= MOST_WIDTHS and min(widths) >= 1 and sum(widths) <= MOST_UNITS):
            raise BadInput(
                f"layers are {widths[:MOST_WIDTHS]}, {len(widths)} in all; accepted are 2 to "
                f"{MOST_WIDTHS} widths, from features to labels, of at most {MOST_UNITS} together"
            )
        if self.size > MOST_WEIGHTS:
            raise BadInput(f"layers have {self.size} weights; accepted are at most {MOST_WEIGHTS}")
        for name, value in (("batch", self.batch), ("learning_rate", self.rate)):
            check_limit(name, value)
        check_limit("clip", self.clip)
        if self.noise_multiplier is not None:
            check_limit("noise_multiplier", self.noise_multiplier)
        if not 0 < self.epochs < math.inf:
            raise BadInput(f"epochs is {self.epochs!r}; accepted is a finite number above 0")
        if not -math.inf < self.low < self.high < math.inf:
            raise BadInput(
                f"features run from {self.low} to {self.high}; accepted are finite numbers in order"
            )

    @property
    def size(self) -> int:
        return sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.layers))

    def check(self, records: Records) -> None:
        """Accept records that these layers can learn from."""
        features, labels = records.features, records.labels
        if features is None or features.ndim != 2 or features.shape[1] != self.layers[0]:
            found = "no features" if features is None else f"features of shape {features.shape[1:]}"
            raise BadInput(
                f"a record has {found} and the first layer takes {self.layers[0]}; accepted are as "
                "many features in a row"
            )
        if not 0 <= int(labels.min()) <= int(labels.max()) < self.layers[-1]:
            raise BadInput(
                f"labels run from {labels.min()} to {labels.max()} and the last layer has "
                f"{self.layers[-1]}; accepted are labels from 0 to {self.layers[-1] - 1}"
            )

    def digest(self, records: Records) -> bytes:
        """A name for this training on these records: the same again is not charged again."""
        names = np.frombuffer(b"\0".join(records.names), dtype=np.uint8)
        assert records.features is not None
        settings = f"own training {json.dumps(asdict(self))}"
        return bytes.fromhex(about(settings, names, records.features, records.labels))

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
        device: str,
        progress: Callable[[int, int], None],
    ) -> bytes:
        """Train on these rows, from the checkpoint if there is one; return the file of weights."""
        assert records.features is not None
        schedule, asked = self.schedule(len(rows))
        scaled = (records.features[rows].astype(np.float64) - self.low) / (self.high - self.low)
        trained = train_privately(
            network(self.layers),
            np.clip(scaled, 0.0, 1.0),
            records.labels[rows],
            loss=_loss,
            schedule=schedule,
            optimizer=lambda parameters: torch.optim.Adam(parameters, lr=self.rate),
            device=device,
            checkpoint=checkpoint,
            every=every,
            progress=progress,
        )
        return self._packed(trained, schedule, asked=asked)

    def _packed(self, trained: Trained, schedule: Schedule, *, asked: int) -> bytes:
        """An npz of the weights by their names, and of `about`, which says what they are."""
        described = {
            "layers": self.layers,
            "features": [self.low, self.high],
            "adjacency": REPLACE_ONE,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "epsilon_of_steps": self.spent(schedule),
            "schedule": asdict(schedule),
            "steps_asked": asked,
            "learning_rate": self.rate,
            "noise": trained.noise,
            "randomness": trained.randomness,
        }
        weights = {name: value.numpy() for name, value in trained.model.state_dict().items()}
        content = io.BytesIO()
        np.savez(content, about=np.array(json.dumps(described)), **weights)
        return content.getvalue()


def describe(file: bytes) -> dict[str, Any]:
    """What a file of weights says about itself, and its SHA-256."""
    with np.load(io.BytesIO(file), allow_pickle=False) as archive:
        found: dict[str, Any] = json.loads(str(archive["about"]))
    return found | {"sha256": hashlib.sha256(file).hexdigest()}


def network(layers: tuple[int, ...]) -> nn.Module:
    """Linear layers with ReLU between them; the first weights are a public draw."""
    parts: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(hashlib.sha256(repr(layers).encode()).digest()[:7], "big"))
        for inputs, outputs in pairwise(layers):
            parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def _loss(outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")
