"""Models, records and a training of them, for tests of private training."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.descent import Schedule
from confide.client.training.engines.probe import made_up
from confide.client.training.private_training import Trained, train
from confide.protocol.exact.sampling import SeededEntropy

N = 600
SCHEDULE = Schedule(noise_multiplier=1.0, sampling_rate=0.05, steps=60, clip=1.0, batch=0.05 * N)


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).square() / 2


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5)


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def records(n: int = N, *, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Three well separated classes in four dimensions."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    centres = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]])
    return centres[labels] + 0.2 * rng.normal(size=(n, 4)), labels


def mlp(outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, outputs)
    )


def weights(model: nn.Module) -> NDArray[Any]:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()]).numpy()


def fit(seed: int = 1, **changes: Any) -> Trained:
    features, labels = records()
    options: dict[str, Any] = {
        "loss": cross_entropy,
        "schedule": SCHEDULE,
        "optimizer": sgd,
        "entropy": SeededEntropy(seed),
    }
    return train(mlp(), features, labels, **(options | changes))


class OneOfAKind(nn.Module):
    """The same function as `mlp`, in a form that only Opacus can take apart."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def like(features: Any, targets: Any) -> tuple[Tensor, Tensor]:
    """Made-up rows of the shape and kind of these records."""
    device = features.device if isinstance(features, Tensor) else torch.device("cpu")
    x, y = (
        np.zeros(tuple(array.shape), dtype=np.int64 if _whole(array) else np.float64)
        for array in (features, targets)
    )
    return made_up(x, y, device)


def _whole(array: Any) -> bool:
    return not (
        array.is_floating_point()
        if isinstance(array, Tensor)
        else np.issubdtype(array.dtype, np.floating)
    )
