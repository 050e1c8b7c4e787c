"""Small networks trained by DP-SGD, for labels and for numbers, with conformal scores."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.descent import Schedule
from confide.client.training.private_training import train
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.sampling import Entropy
from confide.protocol.privacy.budgets import Budget, noise_multiplier
from confide.protocol.privacy.losses import AccountedMechanism, SampledGaussian
from confide.protocol.scores.probabilities import check_labels
from confide.protocol.scores.registry import find_label_score
from confide.protocol.scores.regression import AbsoluteResidual
from confide.protocol.scores.scoring import all_scores, true_scores
from confide.simulation.evaluate.full_data.learners import Rows

# Without a mechanism: no clipping and no noise that could be felt, through the same code.
_NO_CLIP, _NO_NOISE = 1e3, 1e-9


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}
# Widths of hidden layers and steps of a training that a laptop takes in hours.
MOST_WIDTH, MOST_STEPS = 1 << 14, 1 << 20


@dataclass(frozen=True)
class Recipe:
    """Public numbers of a training; `batch` is the expected size of a Poisson batch.

    `fixed_steps`, where it is given, is the number of steps, and epochs count no more.
    """

    hidden: tuple[int, ...] = (16, 16)
    epochs: float = 50
    batch: int = 256
    rate: float = 8e-3
    clip: float = 1.0
    fixed_steps: int | None = None
    optimizer: str = "adam"

    def __post_init__(self) -> None:
        if self.batch < 1 or not self.epochs > 0 or not self.rate > 0 or not self.clip > 0:
            raise BadInput(f"{self}: batch, epochs, rate and clip must be above 0")
        if not all(1 <= width <= MOST_WIDTH for width in self.hidden):
            raise BadInput(
                f"hidden layers have widths {self.hidden}; accepted are widths from 1 to "
                f"{MOST_WIDTH}"
            )
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        self.steps(self.batch)

    def sampling_rate(self, n: int) -> float:
        return min(1.0, self.batch / n)

    def steps(self, n: int) -> int:
        steps = self.fixed_steps
        if steps is None:
            wanted = self.epochs / self.sampling_rate(n)
            steps = max(1, round(min(wanted, 2.0 * MOST_STEPS)))
        if not 1 <= steps <= MOST_STEPS:
            raise BadInput(
                f"training takes {steps} steps or more for {n} records; accepted are 1 to "
                f"{MOST_STEPS}"
            )
        return steps

    def start(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of these parameters."""
        return OPTIMIZERS[self.optimizer](parameters, lr=self.rate)  # type: ignore[call-arg]

    def weights(self, features: int, outputs: int) -> int:
        """How many weights the network has."""
        widths = (features, *self.hidden, outputs)
        return sum((inputs + 1) * width for inputs, width in pairwise(widths))

    def mechanism(self, n: int, budget: Budget) -> AccountedMechanism:
        rate, steps = self.sampling_rate(n), self.steps(n)
        return SampledGaussian(
            noise_multiplier(budget, sampling_rate=rate, steps=steps), rate, steps
        )


@dataclass(frozen=True)
class Labels:
    """Classification by softmax and cross-entropy, with sets of labels.

    The number of labels is public.
    """

    labels: NDArray[Any]
    score: str = "hps"

    def __post_init__(self) -> None:
        check_labels(self.labels, n=len(self.labels), k=self.outputs)

    @property
    def outputs(self) -> int:
        return max(2, int(self.labels.max()) + 1)

    @property
    def targets(self) -> NDArray[Any]:
        return self.labels

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")

    def scores(self, outputs: Tensor, rows: Rows) -> NDArray[Any]:
        return true_scores(
            find_label_score(self.score), self._probs(outputs), self.labels[rows], u=_uniform(rows)
        )

    def sizes(self, outputs: Tensor, rows: Rows, threshold: float) -> NDArray[Any]:
        every = all_scores(find_label_score(self.score), self._probs(outputs), u=_uniform(rows))
        return np.count_nonzero(every <= threshold, axis=1)

    def _probs(self, outputs: Tensor) -> NDArray[Any]:
        return np.asarray(torch.softmax(outputs.double(), dim=1).numpy())


@dataclass(frozen=True)
class Numbers:
    """Regression: squares of residuals over a public bound; residual scores, intervals."""

    values: NDArray[np.float64]
    bound: float
    outputs = 1

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or not np.isfinite(self.values).all():
            raise BadInput(
                f"targets have shape {self.values.shape}; accepted is one row of finite numbers"
            )
        AbsoluteResidual(self.bound)

    @property
    def targets(self) -> NDArray[Any]:
        return self.values / self.bound

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.squeeze(1) - targets).square()

    def scores(self, outputs: Tensor, rows: Rows) -> NDArray[Any]:
        return AbsoluteResidual(self.bound).true_scores(self._predicted(outputs), self.values[rows])

    def sizes(self, outputs: Tensor, rows: Rows, threshold: float) -> NDArray[Any]:
        low, high = AbsoluteResidual(self.bound).interval(self._predicted(outputs), threshold)
        return np.asarray(high - low)

    def _predicted(self, outputs: Tensor) -> NDArray[Any]:
        return np.asarray(outputs.squeeze(1).double().numpy() * self.bound)


def _uniform(rows: Rows) -> NDArray[np.float64]:
    """One number in (0, 1) for each record, the same for every model.

    So randomised scores stay functions of the record.
    """
    return np.random.default_rng(0).random(int(rows.max()) + 1)[rows]


@dataclass(frozen=True)
class NetworkFit:
    """Outputs for all records, and the SHA-256 of the weights they come from."""

    outputs: Tensor
    task: Labels | Numbers
    digest: bytes

    def scores(self, rows: Rows) -> NDArray[Any]:
        return self.task.scores(self.outputs[torch.from_numpy(rows)], rows)

    def sizes(self, rows: Rows, threshold: float) -> NDArray[Any]:
        return self.task.sizes(self.outputs[torch.from_numpy(rows)], rows, threshold)


@dataclass(frozen=True, eq=False)
class NetworkLearner:
    """A network on features that are on a public scale, or a private one that was charged for."""

    features: NDArray[Any]
    task: Labels | Numbers
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or len(self.features) != len(self.task.targets):
            raise BadInput(
                f"features have shape {self.features.shape}, with {len(self.task.targets)} "
                "targets; a row each"
            )
        if not np.isfinite(self.features).all():
            raise BadInput(
                "features hold values that are not finite, such as nan; accepted are finite numbers"
            )

    def __len__(self) -> int:
        return len(self.features)

    def mechanism(self, n: int, budget: Budget) -> AccountedMechanism:
        return self.recipe.mechanism(n, budget)

    def fit(self, rows: Rows, mechanism: AccountedMechanism | None, entropy: Entropy) -> NetworkFit:
        n, recipe = len(rows), self.recipe
        clip = recipe.clip
        if mechanism is None:
            mechanism, clip = (
                SampledGaussian(_NO_NOISE, recipe.sampling_rate(n), recipe.steps(n)),
                _NO_CLIP,
            )
        if not isinstance(mechanism, SampledGaussian):
            raise BadInput(
                f"a network is trained by DP-SGD, which {type(mechanism).__name__} does not "
                "describe"
            )
        schedule = Schedule(
            mechanism.noise_multiplier, mechanism.sampling_rate, mechanism.steps, clip, recipe.batch
        )
        trained = train(
            self._initial(entropy),
            self.features[rows],
            self.task.targets[rows],
            loss=self.task.loss,
            schedule=schedule,
            optimizer=recipe.start,
            entropy=entropy,
            device="cpu",
        )
        with torch.no_grad():
            weights = b"".join(weight.numpy().tobytes() for weight in trained.model.parameters())
            outputs = trained.model(torch.from_numpy(self.features.astype(np.float32)))
            return NetworkFit(outputs, self.task, hashlib.sha256(weights).digest())

    def _initial(self, entropy: Entropy) -> nn.Module:
        widths = (self.features.shape[1], *self.recipe.hidden, self.task.outputs)
        layers: list[nn.Module] = []
        with torch.random.fork_rng():
            torch.manual_seed(int.from_bytes(entropy(7), "little"))
            for i in range(len(widths) - 1):
                layers += [nn.Linear(widths[i], widths[i + 1]), nn.ReLU()]
        return nn.Sequential(*layers[:-1])
