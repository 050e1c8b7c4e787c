"""The steps of DP-SGD: Poisson batch, clipped sum, Gaussian noise, update."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client.chance import gaussian, poisson_batch, random_order, stream
from client.clipping import Clipper
from protocol.errors import BadInput
from protocol.mechanisms import SampledGaussian
from protocol.profile import Profile

FLOATING_POINT = "training noise: floating point"

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Schedule:
    """The public numbers of a training.

    A step divides its noisy sum by `batch`: a public number, usually the sampling rate times the number of records expected;
    never the number drawn, nor one computed from a number of records that is itself private.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    clip: float
    batch: float

    def __post_init__(self) -> None:
        self.mechanism(self.steps)
        if not (0 < self.clip < math.inf and 0 < self.batch < math.inf):
            raise BadInput(f"clip is {self.clip!r} and batch {self.batch!r}; both must be finite numbers above 0")

    def mechanism(self, steps: int) -> SampledGaussian:
        return SampledGaussian(self.noise_multiplier, self.sampling_rate, steps)

    def profile(self, steps: int, *, spent: Profile) -> Profile:
        """What `steps` of this schedule cost after what was spent before."""
        return spent.then(self.mechanism(steps)) if steps else spent


def take_steps(
    model: nn.Module, optimizer: torch.optim.Optimizer, clipped: Clipper, features: Tensor, targets: Tensor,
    schedule: Schedule, key: bytes, steps: range,
) -> Iterator[int]:  # fmt: skip
    """Take the numbered steps, yielding after each how many are taken; FloatingPointError before one whose loss is no number.

    An empty batch is a step like any other: its sum is 0 and it gets its noise. Skipping it, or drawing again, would tell
    that it was empty.
    """
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    sizes = [parameter.numel() for parameter in trained]
    scale = schedule.noise_multiplier * schedule.clip
    for step in steps:
        chance = stream(key, step)
        rows = torch.from_numpy(poisson_batch(len(features), schedule.sampling_rate, chance)).to(features.device)
        noise = torch.from_numpy(scale * gaussian(sum(sizes), chance)).to(features)
        if len(rows) == 0:
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter)
        elif not math.isfinite(float(clipped(features[rows], targets[rows]).sum())):
            raise FloatingPointError(step)
        for parameter, part in zip(trained, torch.split(noise, sizes), strict=True):
            assert parameter.grad is not None
            parameter.grad.add_(part.view_as(parameter)).div_(schedule.batch)
        optimizer.step()
        yield step + 1


def tensors(features: NDArray[Any], targets: NDArray[Any], device: torch.device, key: bytes) -> tuple[Tensor, Tensor]:
    """Records for training, in a random order."""
    if len(features) != len(targets) or len(features) == 0:
        raise BadInput(f"{len(features)} rows of features and {len(targets)} targets; accepted is as many of both, at least 1")
    if not (np.isfinite(features).all() and np.isfinite(targets).all()):
        raise BadInput("features or targets hold values that are not finite; clipping cannot bound what they do")
    order = random_order(key, len(features))
    whole = np.issubdtype(targets.dtype, np.integer)
    return (
        torch.from_numpy(features[order].astype(np.float32)).to(device),
        torch.from_numpy(targets[order].astype(np.int64 if whole else np.float32)).to(device),
    )


def pick_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU."""
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(f"device is {name!r}; accepted are 'auto', 'cpu' and 'cuda'")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("device is 'cuda' and torch finds none here; accepted are 'auto' and 'cpu', or a CUDA build of torch")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
