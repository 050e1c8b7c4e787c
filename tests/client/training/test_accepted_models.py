"""Models that treat every record by itself pass the trial and are trained."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.networks.tried_models import Function, fit
from tests.support.training.private_trainings import cross_entropy

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.score = nn.Embedding(5, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.words(x.long()).mean(1))


def frozen_layer() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    return model


def tied(model: Any, x: Tensor) -> Tensor:
    return model.score(torch.tanh(model.score(x)))


def vectors(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum(dim=1)


NUMBERS, WHOLE = (
    np.random.default_rng(0).normal(size=(60, 3)),
    np.random.default_rng(0).integers(0, 5, (60, 4)),
)


ACCEPTED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "softmax regression": (lambda: nn.Linear(4, 3), (4,), {}),
    "in evaluation mode": (
        lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)).eval(),
        (4,),
        {},
    ),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
        ),
        (2, 6, 6),
        {},
    ),
    "sequences": (lambda: Function(4, lambda own, x: own.score(x).mean(1)), (7, 4), {}),
    "sequences in one linear layer": (
        lambda: nn.Linear(4, 3),
        (5, 4),
        {"loss": lambda o, y: cross_entropy(o.mean(dim=1), y)},
    ),
    "as many steps as made-up rows": (
        lambda: Function(4, lambda own, x: own.score(x).amax(1)),
        (3, 4),
        {},
    ),
    "dropout": (
        lambda: nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 3)),
        (4,),
        {},
    ),
    "a layer used twice": (lambda: Function(3, tied), (3,), {}),
    "a frozen layer": (frozen_layer, (4,), {}),
    "words": (Words, (4,), {"features": WHOLE}),
    "several numbers": (
        lambda: nn.Sequential(nn.Linear(4, 3)),
        (4,),
        {"targets": NUMBERS, "loss": vectors},
    ),
    "probabilities": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()),
        (4,),
        {
            "targets": np.abs(NUMBERS) % 1,
            "loss": lambda o, y: F.binary_cross_entropy(o, y, reduction="none").sum(dim=1),
        },
    ),
    "activations in place": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)),
        (4,),
        {},
    ),
}


@pytest.mark.parametrize("kind", list(ACCEPTED))
def test_models_that_treat_records_one_by_one_are_trained(kind: str) -> None:
    """Features of any rank, labels and numbers, dropout, frozen and repeated layers pass the trial,
    and weights move."""
    make, shape, changes = ACCEPTED[kind]
    model = make()
    trained = fit(model, shape, **changes)
    pairs = list(zip(model.parameters(), trained.model.parameters(), strict=True))
    assert all(
        torch.equal(before, after) != before.requires_grad
        for before, after in pairs
        if before.numel()
    )
    assert trained.steps == 3
