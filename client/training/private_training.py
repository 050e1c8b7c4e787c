"""Training by DP-SGD that ends before its budget is passed, with checkpoints that survive a kill.

Guarantee: the trained weights are as private as `Trained.profile` says, per record and under
add-remove adjacency, provided that the model as given, `Schedule`, loss and optimizer do not depend
on the records, and that model and loss treat every record by itself.
`confide.client.training.engines.probe` tries the latter on made-up rows and refuses models and
losses that mix or keep records; a trial is no proof. Only the trained weights leave: buffers and
untrained parameters of the result are those of the model as given. The distribution of the weights
does not depend on the order of the records. Gradients are taken in double precision, their clipped
sums are rounded to an integer lattice, and noise is discrete Gaussian on the integers
(`Trained.noise`).

Limits: a record's gradient does not depend on the records beside it, not in one bit, if kernels
choose their operations by shape and not by values;
`confide.client.training.engines.fixed_shapes` tries that on made-up rows for the shapes in use, and
a trial is no proof. What float64 loses in sums is
within the lattice's FLOAT_MARGIN. Federated training of linear layers with ReLU and cross-entropy
(`confide.client.training.layers`) is in exact arithmetic and assumes nothing of the kind. Errors
and timing are seen by the owner only and are not covered.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.checkpoint import Checkpoint, about, load, save
from confide.client.training.computing import AUTO
from confide.client.training.descent import (
    MakeOptimizer,
    Schedule,
    check_records,
    pick_device,
    take_steps,
    tensors,
)
from confide.client.training.engines.choice import make_clipper
from confide.client.training.engines.clipper import Clipper
from confide.client.training.engines.parts import Loss
from confide.client.training.engines.probe import made_up, probe
from confide.client.training.randomness import KEY_BYTES
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy, os_entropy, randomness
from confide.protocol.methods.training.terms import NOISE
from confide.protocol.privacy.budgets import Budget, affordable_steps
from confide.protocol.privacy.profiles import Profile

COMPLETED, OUT_OF_BUDGET, DIVERGED = "completed", "stopped before the budget was passed", "diverged"


@dataclass(frozen=True)
class Trained:
    """A model, the whole privacy profile of its training, and how the training ended."""

    model: nn.Module
    profile: Profile
    steps: int
    stopped: str
    randomness: str
    noise: str = NOISE


class Diverged(BadInput):
    """A loss or weight is no number.

    `last` is the model of the last checkpoint, after `kept` steps, charged for every step taken.
    """

    def __init__(self, kept: int, last: Trained) -> None:
        super().__init__(
            f"the loss or a weight is no number after {last.steps} steps; the model after {kept} "
            "is kept. Accepted are a smaller learning rate, a smaller clip or features on a "
            "smaller scale"
        )
        self.last = last


def train(
    model: nn.Module,
    features: NDArray[Any],
    targets: NDArray[Any],
    *,
    loss: Loss,
    schedule: Schedule,
    optimizer: MakeOptimizer,
    budget: Budget | None = None,
    spent: Profile | None = None,
    entropy: Entropy = os_entropy,
    device: str = AUTO,
    engine: str = AUTO,
    checkpoint: Path | None = None,
    settings: str = "",
    every: int = 500,
    progress: Callable[[int, int], None] | None = None,
) -> Trained:
    """Train a copy of the model, in double precision; the result has the dtype of the model given.

    `loss` gives one number a record, `optimizer` is made from the parameters.

    With a budget, training ends before the first step that would pass it, `spent` included. With a
    checkpoint, the state is written to disk every `every` steps; a training that was killed goes on
    from there and repeats the draws of the lost steps, so no step is paid for twice. A checkpoint
    of other records, numbers, layers or `settings` is refused. `progress` is called with the steps
    taken and all steps, and not with a loss, which would not be private.
    """
    check_records(features, targets)
    place, before = pick_device(device), spent or Profile()
    steps = _allowed_steps(schedule, budget, before)
    running = copy.deepcopy(model).double().to(place).train()
    like = made_up(features, targets, place)
    probe(running, loss, like, engine=engine)
    updates = optimizer(_trained(running).values())
    name = about(f"{settings}{schedule} {steps} {running} {updates}", features, targets)
    run = _Run(running, updates, name, checkpoint)
    run.start(entropy)
    try:
        if run.taken < steps:
            records = tensors(features, targets, device=place, key=run.last.key)
            clipped = make_clipper(
                running, loss, schedule.clip, engine=engine, like=like, batch=schedule.batch
            )
            for taken in run.steps(clipped, records, schedule, stop=steps, every=every):
                if progress is not None:
                    progress(taken, steps)
    except FloatingPointError:
        last = run.trained(model, schedule.profile(run.taken, spent=before), DIVERGED)
        raise Diverged(run.last.step, last) from None
    ended = COMPLETED if steps == schedule.steps else OUT_OF_BUDGET
    return run.trained(model, schedule.profile(run.taken, spent=before), ended)


def _allowed_steps(schedule: Schedule, budget: Budget | None, spent: Profile) -> int:
    """The steps of a schedule, or as many of them as a budget has left."""
    if budget is None:
        return schedule.steps
    return affordable_steps(budget, schedule.mechanism(schedule.steps), spent=spent)


@dataclass
class _Run:
    """A training under way: steps taken, the last checkpoint, and its file if it has one."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    about: str
    file: Path | None
    last: Checkpoint = field(init=False)
    taken: int = field(default=0, init=False)

    def start(self, entropy: Entropy) -> None:
        """Go on from the checkpoint on disk, or write the first one with a new key."""
        found = None if self.file is None else load(self.file, self.about)
        if found is None:
            self._keep(entropy(KEY_BYTES), randomness(entropy))
        else:
            _put(self.model, found.model)
            self.optimizer.load_state_dict(found.optimizer)
            self.last, self.taken = found, found.step

    def steps(
        self,
        clipped: Clipper,
        records: tuple[Tensor, Tensor],
        schedule: Schedule,
        *,
        stop: int,
        every: int,
    ) -> Iterator[int]:
        """Take the steps that are left, and yield the number taken at every checkpoint.

        FloatingPointError if a loss, or at a checkpoint a weight, is no number.
        """
        key, left = self.last.key, range(self.taken, stop)
        for taken in take_steps(
            self.model,
            self.optimizer,
            clipped,
            records=records,
            schedule=schedule,
            key=key,
            steps=left,
        ):
            self.taken = taken
            if self.taken % every == 0 or self.taken == stop:
                _check_finite(self.model, self.taken)
                # A finished training needs no key, and its file does not reveal the noise.
                self._keep(key if self.taken < stop else b"", self.last.randomness)
                yield self.taken

    def trained(self, model: nn.Module, profile: Profile, stopped: str) -> Trained:
        """A copy of the model as given, with the weights of the last checkpoint."""
        result = copy.deepcopy(model)
        _put(result, self.last.model)
        return Trained(result, profile, self.taken, stopped, self.last.randomness)

    def _keep(self, key: bytes, source: str) -> None:
        # Copies, because training goes on.
        weights = {name: value.detach().clone() for name, value in _trained(self.model).items()}
        updates = copy.deepcopy(self.optimizer.state_dict())
        self.last = Checkpoint(self.about, self.taken, key, source, weights, updates)
        if self.file is not None:
            save(self.file, self.last)


def _check_finite(model: nn.Module, step: int) -> None:
    if not all(bool(torch.isfinite(parameter).all()) for parameter in _trained(model).values()):
        raise FloatingPointError(step)


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes; the result has all others as they were given."""
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def _put(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in _trained(model).items():
            parameter.copy_(weights[name])
