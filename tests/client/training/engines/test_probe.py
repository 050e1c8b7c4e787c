"""Models and losses that mix or keep records are refused before the first step, through `train`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.engines.choice import ENGINES
from confide.client.training.engines.probe import made_up, probe
from confide.protocol.errors import BadInput
from tests.support.networks.tried_models import PATCHES, Function, fit, keeps, patches
from tests.support.training.private_trainings import cross_entropy

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)


def frozen_backbone() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    for parameter in model[:3].parameters():
        parameter.requires_grad = False
    return model


def writes_weights(model: Any, x: Tensor) -> Tensor:
    outputs = model.score(x)
    with torch.no_grad():
        model.score.bias.data[0] = x.detach().max()
    return outputs


def time_major(model: Any, x: Tensor) -> Tensor:
    return model.score(x.reshape(len(x), PATCHES, 4).transpose(0, 1)).mean(0)


STATE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "normalisation without weights": (
        lambda: nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3)),
        r"0.num_batches_tracked \(of BatchNorm1d\)",
    ),
    "normalisation that is frozen": (frozen_backbone, r"1.num_batches_tracked \(of BatchNorm1d\)"),
    "instance normalisation": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 2)),
            nn.InstanceNorm1d(2, track_running_stats=True),
            nn.Flatten(),
            nn.Linear(4, 3),
        ),
        "1.running_mean",
    ),
    "a buffer": (lambda: Function(4, keeps), r"changes kept \(of Function\)"),
    "a weight": (lambda: Function(4, writes_weights), r"score.bias \(of Linear\)"),
    "spectral norm": (lambda: nn.utils.spectral_norm(nn.Linear(4, 3)), "weight_u"),
}


@pytest.mark.parametrize("kind", list(STATE))
def test_models_that_keep_something_of_records_are_refused(kind: str) -> None:
    """State written in a forward pass would leave with the model, without noise; the refusal names
    it."""
    make, message = STATE[kind]
    with pytest.raises(BadInput, match=message):
        fit(make())


def hidden_mixing() -> nn.Module:
    """Two layers of zeros: at these weights nothing shows what they would learn from."""
    model = Function(4, lambda own, x: own.score(x - x.mean(0)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


MIXED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "patches as records": (
        lambda: Function(4, patches),
        (4 * PATCHES,),
        "has 16 gradients|has 112 gradients",
    ),
    "time first": (
        lambda: Function(4, time_major),
        (4 * PATCHES,),
        "of 1 records, score.weight has 16 gradients",
    ),
    "centred": (
        lambda: Function(4, lambda own, x: own.score(50 * (x - x.mean(0)))),
        (4,),
        "do not add up",
    ),
    "softmax over records": (
        lambda: nn.Sequential(nn.Softmax(dim=0), nn.Linear(4, 3)),
        (4,),
        "do not add up",
    ),
    "normalised by the batch": (
        lambda: nn.Sequential(
            nn.BatchNorm1d(4, affine=False, track_running_stats=False), nn.Linear(4, 3)
        ),
        (4,),
        "fails on 1 to 7 made-up rows",
    ),
    "another order within": (
        lambda: Function(4, lambda own, x: own.score(x.flip(0)).flip(0)),
        (4,),
        "do not add up",
    ),
    "a weight used outside of its layer": (
        lambda: Function(4, lambda own, x: own.score(x) + F.linear(x, own.score.weight)),
        (4,),
        "is not its gradient",
    ),
    "behind zeros": (hidden_mixing, (4,), "do not add up"),
    "chance outside of dropout modules": (
        lambda: Function(4, lambda own, x: F.dropout(own.score(x), training=own.training)),
        (4,),
        "dropout as modules",
    ),
}


@pytest.mark.parametrize("kind", list(MIXED))
def test_models_that_mix_records_are_refused(kind: str) -> None:
    """Where a gradient depends on other records, or is not the whole of one, no clip bounds what a
    record does."""
    make, shape, message = MIXED[kind]
    torch.manual_seed(0)
    with pytest.raises(BadInput, match=message):
        fit(make(), shape)


LOSSES = {
    "weighted by the batch": (
        lambda o, y: cross_entropy(o, y) * o.detach().mean(),
        "do not add up",
    ),
    "compared within the batch": (
        lambda o, y: cross_entropy(o - o.mean(dim=0) / 2, y),
        "do not add up",
    ),
    "balanced labels": (lambda o, y: cross_entropy(o, y) / torch.bincount(y)[y], "do not add up"),
    "one record is no batch": (lambda o, y: cross_entropy(o, y).squeeze(), "one number a record"),
    "no gradient": (lambda o, y: o.sum(dim=1) * 0, "no made-up row has a gradient"),
}


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("kind", list(LOSSES))
def test_losses_that_mix_records_are_refused(kind: str, engine: str) -> None:
    """Also a loss can make a record's gradient depend on the others."""
    loss, message = LOSSES[kind]
    with pytest.raises(BadInput, match=message):
        fit(nn.Linear(4, 3), loss=loss, engine=engine)


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


def test_every_step_counts_gradients() -> None:
    """A layer that sees parts of records as rows in larger batches alone is refused before the
    first step."""

    def sly(model: Any, x: Tensor) -> Tensor:
        return (
            patches(model, x) if len(x) > 7 else model.score(x.reshape(len(x), PATCHES, 4)).mean(1)
        )

    with pytest.raises(BadInput, match=r"score\.weight has \d\d\d gradients"):
        fit(Function(4, sly), (4 * PATCHES,))


def test_a_trial_knows_no_record_and_leaves_chance_alone() -> None:
    """Made-up rows follow from shape and kind; torch's generator is as before whether a model is
    accepted or refused."""
    features, labels = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    cpu = torch.device("cpu")

    def rows(x: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor]:
        return made_up(x, y, cpu)

    for ours, theirs in zip(
        rows(features, labels), rows(features[:9] * 1e6 + 7, labels[:9] + 5), strict=True
    ):
        assert torch.equal(ours, theirs)
    noisy = Function(4, lambda own, x: F.dropout(own.score(x))).double()
    quiet = nn.Sequential(nn.Linear(4, 3), nn.Dropout()).double()
    before = torch.get_rng_state()
    with pytest.raises(BadInput):
        probe(noisy, cross_entropy, rows(features, labels), engine="auto")
    assert torch.equal(before, torch.get_rng_state())
    probe(quiet, cross_entropy, rows(features, labels), engine="auto")
    assert torch.equal(before, torch.get_rng_state())
