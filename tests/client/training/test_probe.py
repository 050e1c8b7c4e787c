"""Models and losses that mix or keep records are refused before the first step, through `train`;
others are trained."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.descent import Schedule
from confide.client.training.engines.choice import make_clipper
from confide.client.training.engines.closed_form import stack_of
from confide.client.training.private_training import Trained, train
from confide.client.training.probe import made_up, probe
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.training import like

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)

SCHEDULE = Schedule(noise_multiplier=1.0, sampling_rate=0.5, steps=3, clip=1.0, batch=30.0)
PATCHES = 16


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def fit(model: nn.Module, shape: tuple[int, ...] = (4,), **changes: Any) -> Trained:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(60, *shape)), rng.integers(0, 3, 60)
    options: dict[str, Any] = {
        "features": features,
        "targets": labels,
        "loss": cross_entropy,
        "schedule": SCHEDULE,
    }
    return train(model, **(options | {"optimizer": sgd, "entropy": SeededEntropy(1)} | changes))


class Function(nn.Module):
    """A linear layer, and a forward pass around it."""

    def __init__(self, width: int, forward: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.score, self.other, self.pass_on = nn.Linear(width, 3), nn.Linear(3, 3), forward
        self.register_buffer("kept", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.pass_on(self, x))


def frozen_backbone() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    for parameter in model[:3].parameters():
        parameter.requires_grad = False
    return model


def keeps(model: Any, x: Tensor) -> Tensor:
    model.kept.copy_(x[0].detach())
    return model.score(x)


def writes_weights(model: Any, x: Tensor) -> Tensor:
    outputs = model.score(x)
    with torch.no_grad():
        model.score.bias.data[0] = x.detach().max()
    return outputs


def patches(model: Any, x: Tensor) -> Tensor:
    return model.score(x.reshape(-1, 4)).reshape(len(x), PATCHES, 3).mean(1)


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


@pytest.mark.parametrize("engine", ["stack", "hooks"])
@pytest.mark.parametrize("kind", list(LOSSES))
def test_losses_that_mix_records_are_refused(kind: str, engine: str) -> None:
    """Also a loss can make a record's gradient depend on the others."""
    loss, message = LOSSES[kind]
    with pytest.raises(BadInput, match=message):
        fit(nn.Linear(4, 3), loss=loss, engine=engine)


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
        probe(noisy, cross_entropy, "auto", *rows(features, labels))
    assert torch.equal(before, torch.get_rng_state())
    probe(quiet, cross_entropy, "auto", *rows(features, labels))
    assert torch.equal(before, torch.get_rng_state())
