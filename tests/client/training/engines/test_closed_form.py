"""Which models are stacks, and that their closed form is theirs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from confide.client.training.engines.choice import make_clipper
from confide.client.training.engines.closed_form import stack_of
from tests.support.training.private_trainings import cross_entropy, like

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)


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
            make_clipper(model.double(), cross_entropy, 1.0, engine="stack", like=like(x, y))(x, y)[
                1
            ]
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
