"""Models for the trial before training, and a short training of them."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from confide.client.training.descent import Schedule
from confide.client.training.private_training import Trained, train
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.training.private_trainings import cross_entropy

SCHEDULE = Schedule(noise_multiplier=1.0, sampling_rate=0.5, steps=3, clip=1.0, batch=30.0)
PATCHES = 16


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def fit(model: nn.Module, shape: tuple[int, ...] = (4,), **changes: Any) -> Trained:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(60, *shape)), rng.integers(0, 3, 60)
    options: dict[str, Any] = {
        "features": features,
        "targets": labels,
        "loss": cross_entropy,
        "schedule": SCHEDULE,
    }
    return train(model, **(options | {"optimizer": sgd, "entropy": SeededEntropy(1)} | changes))


class Function(nn.Module):
    """A linear layer, and a forward pass around it."""

    def __init__(self, width: int, forward: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.score, self.other, self.pass_on = nn.Linear(width, 3), nn.Linear(3, 3), forward
        self.register_buffer("kept", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.pass_on(self, x))


def keeps(model: Any, x: Tensor) -> Tensor:
    model.kept.copy_(x[0].detach())
    return model.score(x)


def patches(model: Any, x: Tensor) -> Tensor:
    return model.score(x.reshape(-1, 4)).reshape(len(x), PATCHES, 3).mean(1)
