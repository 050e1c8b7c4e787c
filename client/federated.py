"""Federated averaging of local DP-SGD: each owner's records are protected by the owner's own noise.

Privacy is per record and against everybody else, the aggregator and the other owners included: an owner's weights leave only
after its noise. Owners hold disjoint records, so they compose in parallel; what an owner receives from the others is a
function of its own earlier, charged messages and of records that are not its own.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client.clipping import AUTO, Loss, make_clipper
from client.descent import MakeOptimizer, Schedule, take_steps, tensors
from protocol.budget import Budget, affordable_steps
from protocol.errors import BadInput
from protocol.profile import Profile, parallel

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Share:
    """One owner: records, schedule, the key of all its chance, and its public weight in the average."""

    features: NDArray[Any]
    targets: NDArray[Any]
    schedule: Schedule
    key: bytes
    weight: float = 1.0


@dataclass(frozen=True)
class Averaged:
    """The common model, what it costs the worst-off record, and the steps each owner took."""

    model: nn.Module
    profile: Profile
    steps: tuple[int, ...]


def local_steps(
    model: nn.Module, weights: Weights, share: Share, steps: range, *, loss: Loss, optimizer: MakeOptimizer, engine: str = AUTO
) -> Weights:
    """The weights after an owner's numbered steps from given ones, with a fresh optimizer.

    A key and a step make one draw of noise: asked for the same steps from other weights, the owner must refuse, or answer
    with what it answered before, because the difference of two answers would hold no noise. That is the caller's ledger.
    """
    local = copy.deepcopy(model)
    local.load_state_dict(weights)
    updates = optimizer([parameter for parameter in local.parameters() if parameter.requires_grad])
    clipped = make_clipper(local, loss, share.schedule.clip, engine)
    x, y = tensors(share.features, share.targets, torch.device("cpu"), share.key)
    try:
        for _ in take_steps(local, updates, clipped, x, y, share.schedule, share.key, steps):
            pass
    except FloatingPointError as error:
        raise BadInput(f"the loss is no number at local step {error}; accepted is a smaller learning rate or clip") from None
    return {name: value.detach().clone() for name, value in local.state_dict().items()}


def average(weights: Sequence[Weights], counts: Sequence[float]) -> Weights:
    """The weighted mean; `counts` are public numbers (under add-remove an owner's number of records is private)."""
    total = sum(counts)
    if len(weights) != len(counts) or not total > 0 or min(counts) < 0:
        raise BadInput(f"{len(weights)} sets of weights and counts {list(counts)}; accepted is a count >= 0 each, some above 0")
    return {
        name: sum((one[name] * (count / total) for one, count in zip(weights, counts, strict=True)), torch.zeros(()))
        for name in weights[0]
    }


def federated_average(
    model: nn.Module, shares: Sequence[Share], *, rounds: int, local: int, loss: Loss, optimizer: MakeOptimizer,
    budget: Budget | None = None, engine: str = AUTO,
) -> Averaged:  # fmt: skip
    """`rounds` of `local` steps at every owner, averaged; an owner stays away once its next round would pass the budget."""
    if len({share.key for share in shares}) != len(shares):
        raise BadInput("two owners have the same key; each needs its own, or their noise cancels")
    most = [
        share.schedule.steps if budget is None else affordable_steps(budget, share.schedule.mechanism(share.schedule.steps))
        for share in shares
    ]
    taken = [0] * len(shares)
    weights: Weights = copy.deepcopy(model.state_dict())
    for _ in range(rounds):
        present = [i for i in range(len(shares)) if taken[i] + local <= most[i]]
        if not present:
            break
        trained = []
        for i in present:
            steps = range(taken[i], taken[i] + local)
            trained.append(local_steps(model, weights, shares[i], steps, loss=loss, optimizer=optimizer, engine=engine))
        weights = average(trained, [shares[i].weight for i in present])
        for i in present:
            taken[i] += local
    common = copy.deepcopy(model)
    common.load_state_dict(weights)
    spent = [share.schedule.profile(count, spent=Profile()) for share, count in zip(shares, taken, strict=True)]
    return Averaged(common, parallel(*spent), tuple(taken))
