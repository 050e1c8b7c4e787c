"""Settings, schedules, models and records that training refuses."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from confide.client.training.clipping import make_clipper, stack_of
from confide.client.training.descent import pick_device
from confide.client.training.private_training import train
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import MOST_BATCH
from tests.support.private_training import (
    SCHEDULE,
    N,
    cross_entropy,
    fit,
    mlp,
    records,
    sgd,
    squares,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)


class OneOfAKind(nn.Module):
    """The same function as `mlp`, in a form that only Opacus can take apart."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_asked_for_and_absent_is_a_clear_error() -> None:
    """Asking for a device that is not there names what is accepted; `auto` falls back."""
    with pytest.raises(BadInput, match="torch finds none here"):
        fit(device="cuda")
    assert pick_device("auto").type == "cpu"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": F.cross_entropy}, "one number a record"),
        ({"engine": "fast"}, "'stack'"),
        ({"device": "tpu"}, "'cpu'"),
    ],
)
def test_unusable_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    """Every refusal names what was found and what is accepted."""
    with pytest.raises(BadInput, match=message):
        fit(**changes)


@pytest.mark.parametrize(
    "changes", [{"clip": 1e200}, {"clip": 0.0}, {"batch": math.inf}, {"noise_multiplier": 1e9}]
)
def test_unusable_schedules_are_refused(changes: dict[str, Any]) -> None:
    """A clip or batch beyond the limits of the lattice is no schedule."""
    with pytest.raises(BadInput, match="accepted"):
        replace(SCHEDULE, **changes)


def test_unusable_models_and_records_are_refused() -> None:
    """Batch normalisation mixes records, and infinite features escape clipping."""
    features, labels = records()
    normalised = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with pytest.raises(BadInput, match="record by record"):
        train(normalised, features, labels, loss=cross_entropy, schedule=SCHEDULE, optimizer=sgd)
    with pytest.raises(BadInput, match="no stack of linear layers"):
        make_clipper(OneOfAKind(), cross_entropy, 1.0, "stack")
    assert stack_of(OneOfAKind()) is None
    with pytest.raises(BadInput, match="not finite"):
        train(
            mlp(),
            np.full((N, 4), np.inf),
            labels,
            loss=cross_entropy,
            schedule=SCHEDULE,
            optimizer=sgd,
        )
    with pytest.raises(BadInput, match="not float64"):
        make_clipper(mlp(), cross_entropy, 1.0)
    with pytest.raises(BadInput, match="at most 1048576"):
        train(
            mlp(),
            np.zeros((MOST_BATCH + 1, 4)),
            np.zeros(MOST_BATCH + 1),
            loss=squares,
            schedule=SCHEDULE,
            optimizer=sgd,
        )
    with pytest.raises(BadInput, match="as many of both"):
        train(mlp(), features[:-1], labels, loss=cross_entropy, schedule=SCHEDULE, optimizer=sgd)
