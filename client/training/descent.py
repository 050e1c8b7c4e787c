"""The steps of DP-SGD: Poisson batch, clipped sum on the integer lattice, exact noise, update."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.computing import check_device
from confide.client.training.engines.clipper import Clipper, clipped_sum
from confide.client.training.randomness import poisson_batch, random_order, stream
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.lattice import CLIP_UNITS, MOST_BATCH, sensitivity
from confide.protocol.methods.training.terms import LIMITS, check_limit
from confide.protocol.privacy.losses import SampledGaussian
from confide.protocol.privacy.profiles import Profile

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

# Less noise than a plan may ask for is the owner's own choice here.
MOST_NOISE = LIMITS["noise_multiplier"][1]


@dataclass(frozen=True)
class Schedule:
    """The public numbers of a training.

    A step divides its noisy sum by `batch`, usually the sampling rate times the expected number of
    records. It must be public: neither the number that was drawn, nor computed from a private
    number of records.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    clip: float
    batch: float

    def __post_init__(self) -> None:
        self.mechanism(self.steps)
        if self.noise_multiplier > MOST_NOISE:
            raise BadInput(
                f"noise_multiplier is {self.noise_multiplier!r}; accepted is at most {MOST_NOISE:g}"
            )
        check_limit("clip", self.clip)
        check_limit("batch", self.batch)

    def mechanism(self, steps: int) -> SampledGaussian:
        return SampledGaussian(self.noise_multiplier, self.sampling_rate, steps)

    def profile(self, steps: int, *, spent: Profile) -> Profile:
        """What `steps` of this schedule cost after what was spent before."""
        return spent.then(self.mechanism(steps)) if steps else spent


def take_steps(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    clipped: Clipper,
    *,
    records: tuple[Tensor, Tensor],
    schedule: Schedule,
    key: bytes,
    steps: range,
) -> Iterator[int]:
    """Take the numbered steps, and yield after each how many are taken.

    A step whose loss is no number raises FloatingPointError before it changes the weights. An empty
    batch is a step like any other: its sum is 0 and it gets its noise. Skipping it, or drawing
    again, would tell that it was empty.
    """
    features, _ = records
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    sizes = [parameter.numel() for parameter in trained]
    variance = (Fraction(schedule.noise_multiplier) * sensitivity(sum(sizes))) ** 2
    for step in steps:
        chance = stream(key, step)
        rows = poisson_batch(len(features), schedule.sampling_rate, chance)
        noise = discrete_gaussian(variance, sum(sizes), chance)
        sums = clipped_sum(
            clipped, records, rows, weights=sum(sizes), entropy=chance, check=_check_losses
        )
        noisy = sums + noise
        update = torch.from_numpy(noisy * (schedule.clip / CLIP_UNITS / schedule.batch)).to(
            features.device
        )
        for parameter, part in zip(trained, torch.split(update, sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        optimizer.step()
        yield step + 1


def _check_losses(losses: Tensor) -> None:
    """The owner trains for itself here and may learn that its training diverges."""
    if not math.isfinite(float(losses.sum())):
        raise FloatingPointError("a loss is no number")


def check_records(features: NDArray[Any], targets: NDArray[Any]) -> None:
    """Accept records that can be trained on."""
    if len(features) == 0:
        raise BadInput("there are no records to train on; accepted is at least 1")
    if len(features) != len(targets):
        raise BadInput(
            f"{len(features)} rows of features and {len(targets)} targets; accepted is as many of "
            "both"
        )
    if len(features) > MOST_BATCH:
        raise BadInput(
            f"there are {len(features)} records to train on; accepted are at most {MOST_BATCH}"
        )
    if not (np.isfinite(features).all() and np.isfinite(targets).all()):
        raise BadInput(
            "features or targets hold values that are not finite; clipping cannot bound what they "
            "do"
        )


def tensors(
    features: NDArray[Any], targets: NDArray[Any], *, device: torch.device, key: bytes
) -> tuple[Tensor, Tensor]:
    """Records for training in double precision, in a random order."""
    order = random_order(key, len(features))
    return (
        torch.from_numpy(features[order].astype(np.float64)).to(device),
        torch.from_numpy(targets[order].astype(np.int64 if is_whole(targets) else np.float64)).to(
            device
        ),
    )


def is_whole(values: NDArray[Any]) -> bool:
    """Integers, such as labels."""
    return np.issubdtype(values.dtype, np.integer)


def pick_device(name: str) -> torch.device:
    """The device of a name: `auto` is CUDA where there is one, else the CPU; `cuda:1` the second.

    The owner chooses it, never a plan.
    """
    number = check_device(name) or 0
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name.startswith("cuda") and not devices:
        raise BadInput(
            f"device is {name!r} and torch finds none here; accepted are 'auto' and 'cpu', or a "
            "CUDA build of torch"
        )
    if name == "cpu" or not devices:
        return torch.device("cpu")
    if number >= devices:
        raise BadInput(f"device is {name!r}; accepted are 'cuda:0' to 'cuda:{devices - 1}' here")
    return torch.device("cuda", number)


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Let torch compute on one thread, if it computes on the CPU.

    Micro-batches are small: several threads wait for each other longer than they compute, the more
    so on a machine that does other work. With one, the order of additions does not depend on how
    many processors a machine has.

    Subnormal numbers count as 0 meanwhile. A processor takes many times as long for them, and with
    weights chosen for it the time of a round would tell how many records lead to one.
    """
    before, flushed = torch.get_num_threads(), _is_flushing()
    if device.type == "cpu":
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(flushed)


def _is_flushing() -> bool:
    """Whether this thread takes subnormal results for 0; torch does not say."""
    least = torch.tensor(torch.finfo(torch.float64).tiny, dtype=torch.float64)
    return float(least / 2) == 0.0
