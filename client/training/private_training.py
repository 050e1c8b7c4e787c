"""Training by DP-SGD, with a stop before the budget is passed and checkpoints that survive a kill.

Guarantee: the trained weights are as private as `Trained.profile` says, per record and under
add-remove adjacency, provided that the model as given, `Schedule`, loss and optimizer do not depend
on the records, and that model and loss treat every record by itself.
`confide.client.training.probe` tries the latter on made-up rows and refuses what mixes or keeps
them; a trial is no proof. Nothing leaves but the trained weights: buffers and untrained parameters
of the result are those of the model as given. The law of the weights does not depend on the order
of the records. Gradients are taken in double precision, their clipped sums are rounded to an
integer lattice, and noise is discrete Gaussian on the integers (`Trained.noise`).

Limits: a record's gradient may depend on the records beside it by the rounding of doubles. The
lattice's FLOAT_MARGIN covers up to 2^-39 of a clipping length a record. That torch's gradients stay
within it is an assumption about scale, with features and targets within about 1e3, and no theorem.
A smooth loss that is steep at features of 1e5 and more breaks it, and so does, at any scale, a
gradient that jumps between neighbouring doubles (a ReLU at exactly 0). Weights and records are the
owner's own here, so nobody else can aim at such a point. Federated training
(`confide.client.training.layers`: linear layers, ReLU and cross-entropy, with weights that others
choose) is in exact arithmetic and assumes nothing of the kind. Errors and timing are seen by the
owner only and are not covered.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from confide.client.training.checkpoint import Checkpoint, about, load, save
from confide.client.training.clipping import AUTO, OPACUS, Loss, make_clipper
from confide.client.training.descent import (
    MakeOptimizer,
    Schedule,
    check_records,
    pick_device,
    take_steps,
    tensors,
)
from confide.client.training.probe import made_up, probe
from confide.client.training.randomness import KEY_BYTES
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy, os_entropy, randomness
from confide.protocol.methods.training import NOISE
from confide.protocol.privacy.budgets import Budget, affordable_steps
from confide.protocol.privacy.profiles import Profile

COMPLETED, OUT_OF_BUDGET, DIVERGED = "completed", "stopped before the budget was passed", "diverged"


@dataclass(frozen=True)
class Trained:
    """A model, the whole privacy profile of what it tells, and how its training ended."""

    model: nn.Module
    profile: Profile
    steps: int
    stopped: str
    randomness: str
    noise: str = NOISE


class Diverged(BadInput):
    """A loss or weight that is no number. `last` is the model of the last checkpoint, charged for
    every step taken."""

    def __init__(self, message: str, last: Trained) -> None:
        super().__init__(message)
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
    device: str = "auto",
    engine: str = AUTO,
    checkpoint: Path | None = None,
    every: int = 500,
    progress: Callable[[int, int], None] | None = None,
) -> Trained:
    """Train a copy of the model, in double precision; the result has the dtype of the model given.

    `loss` gives one number a record, `optimizer` is made from the parameters.

    With a budget, training ends before the first step that would pass it, `spent` included. With a
    checkpoint, the state is put on disk every `every` steps; a training that was killed continues
    from there with the very draws of the steps lost, so no step is paid for twice. `progress(taken,
    steps)` is told no loss: a loss is not private.
    """
    check_records(features, targets)
    if engine == AUTO and features.ndim != 2:
        # The closed form is for one row of numbers a record.
        engine = OPACUS
    place, before = pick_device(device), spent or Profile()
    mechanism = schedule.mechanism(schedule.steps)
    steps = schedule.steps if budget is None else affordable_steps(budget, mechanism, spent=before)
    running = copy.deepcopy(model).double().to(place).train()
    probe(running, loss, engine, *made_up(features, targets, place))
    updates = optimizer(_trained(running).values())
    name = about(f"{schedule} {steps} {running} {updates}", features, targets)
    state = None if checkpoint is None else load(checkpoint, name)
    if state is None:
        state = _state(name, 0, entropy(KEY_BYTES), randomness(entropy), running, updates)
        _keep(checkpoint, state)
    _put(running, state.model)
    updates.load_state_dict(state.optimizer)

    def result(last: Checkpoint, taken: int, stopped: str) -> Trained:
        trained = copy.deepcopy(model)
        _put(trained, last.model)
        return Trained(
            trained, schedule.profile(taken, spent=before), taken, stopped, last.randomness
        )

    if state.step < steps:
        key, taken = state.key, state.step
        x, y = tensors(features, targets, place, key)
        clipped = make_clipper(running, loss, schedule.clip, engine)
        try:
            for taken in take_steps(
                running, updates, clipped, x, y, schedule, key, range(state.step, steps)
            ):
                if taken % every == 0 or taken == steps:
                    _check_finite(running, taken)
                    # A finished training needs no more chance, and its file tells nobody the noise.
                    state = _state(
                        name,
                        taken,
                        key if taken < steps else b"",
                        state.randomness,
                        running,
                        updates,
                    )
                    _keep(checkpoint, state)
                    if progress is not None:
                        progress(taken, steps)
        except FloatingPointError:
            raise Diverged(
                f"the loss or a weight is no number after {taken} steps; the model after "
                f"{state.step} is kept. Accepted are a "
                "smaller learning rate, a smaller clip or features on a smaller scale",
                result(state, taken, DIVERGED),
            ) from None
    return result(state, state.step, COMPLETED if steps == schedule.steps else OUT_OF_BUDGET)


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """What training changes, and all that leaves with the result: everything else is as it was
    given."""
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def _put(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in _trained(model).items():
            parameter.copy_(weights[name])


def _check_finite(model: nn.Module, step: int) -> None:
    if not all(bool(torch.isfinite(parameter).all()) for parameter in _trained(model).values()):
        raise FloatingPointError(step)


def _state(
    name: str,
    step: int,
    key: bytes,
    source: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> Checkpoint:
    # Copies, because training goes on.
    weights = {name: parameter.detach().clone() for name, parameter in _trained(model).items()}
    return Checkpoint(name, step, key, source, weights, copy.deepcopy(optimizer.state_dict()))


def _keep(checkpoint: Path | None, state: Checkpoint) -> None:
    if checkpoint is not None:
        save(checkpoint, state)
