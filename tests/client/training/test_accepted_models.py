"""Models that treat records one by one pass the trial and are trained; weights alone leave."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from confide.client.training.engines import make_clipper, stack_of
from tests.support.probed_models import Function, fit, keeps
from tests.support.training import cross_entropy, like

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)


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


def test_activations_in_place_do_no_harm() -> None:
    """The sums of a stack are the same whether its activations overwrite their input or not."""
    torch.manual_seed(0)
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randint(0, 3, (30,))
    sums = []
    for inplace in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(4, 8),
            nn.ReLU(inplace),
            nn.Linear(8, 8),
            nn.ELU(inplace=inplace),
            nn.Linear(8, 3),
        )
        sums.append(
            make_clipper(model.double(), cross_entropy, 1.0, "stack", like=like(x, y))(x, y)[1]
        )
    torch.testing.assert_close(*sums, rtol=1e-12, atol=1e-3)


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda module, given, found: found * 2)
    return layer


def replaced(layer: Any) -> nn.Module:
    layer.forward = lambda x: F.linear(x, layer.weight)
    return layer


@pytest.mark.parametrize(
    "change", [nn.utils.spectral_norm, nn.utils.parametrizations.weight_norm, hooked, replaced]
)
def test_changed_layers_are_no_stack(change: Callable[[nn.Module], nn.Module]) -> None:
    """Hooks and weights that are computed from others make a linear layer another function than its
    closed form."""
    assert stack_of(nn.Linear(4, 3)) is not None
    assert stack_of(change(nn.Linear(4, 3))) is None
    assert stack_of(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), change(nn.Linear(4, 3)))) is None


def test_nothing_leaves_but_trained_weights() -> None:
    """A model that passes the trial and keeps a record of larger batches is released with what it
    was given."""

    def sly(model: Any, x: Tensor) -> Tensor:
        return keeps(model, x) if len(x) > 8 else model.score(x)

    model = Function(4, sly)
    given = {name: value.clone() for name, value in model.state_dict().items()}
    found = fit(model).model.state_dict()
    assert torch.equal(found["kept"], given["kept"])
    assert not torch.equal(found["score.weight"], given["score.weight"])
