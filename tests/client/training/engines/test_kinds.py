"""Models of many layers: which engine takes them apart, and that each finds the same gradients."""

import logging

import pytest
import torch
from torch import Tensor, nn

from confide.client.training.engines.choice import ENGINES, make_clipper
from confide.client.training.engines.fixed_shapes import without_dropout
from confide.client.training.engines.probe import probe
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import CLIP_UNITS
from tests.support.networks.torch_models import KINDS, REFUSED, Kind
from tests.support.training.private_trainings import cross_entropy

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)
CPU = torch.device("cpu")
CLIP = 0.5


def expected(kind: Kind, model: nn.Module, records: tuple[Tensor, Tensor]) -> Tensor:
    """Gradients by plain automatic differentiation, one record at a time, clipped and added."""
    trained = [value for value in model.parameters() if value.requires_grad]
    total = torch.zeros(sum(value.numel() for value in trained), dtype=torch.float64)
    for x, y in zip(*records, strict=True):
        loss = cross_entropy(model(x.unsqueeze(0)), y.unsqueeze(0)).sum()
        own = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained)])
        total += own * CLIP_UNITS / max(float(own.norm()), CLIP)
    return total


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("name", list(KINDS))
def test_every_engine_finds_the_gradients_or_says_why_not(name: str, engine: str) -> None:
    """The trial passes and clipped sums are those of plain automatic differentiation; or the
    refusal names the layer."""
    kind = KINDS[name]
    like, model = kind.like(CPU), kind.model()
    if (name, engine) in REFUSED:
        with pytest.raises(BadInput, match=REFUSED[name, engine]):
            probe(model, cross_entropy, like, engine=engine)
        return
    probe(model, cross_entropy, like, engine=engine)
    quiet, records = without_dropout(model), kind.records(13)
    clipped = make_clipper(quiet, cross_entropy, CLIP, engine=engine, like=like, batch=8)
    sums, plain = clipped(*records)[1], expected(kind, without_dropout(model), records)
    assert float((sums - plain).norm()) < 1e-5 * CLIP_UNITS
    assert float(plain.norm()) > 0.1 * CLIP_UNITS


@pytest.mark.parametrize("name", list(KINDS))
def test_the_engine_is_chosen_and_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """`auto` takes the first engine that fits, has its name, and logs it."""
    kind = KINDS[name]
    with caplog.at_level(logging.INFO, logger="confide"):
        clipped = make_clipper(kind.model(), cross_entropy, CLIP, like=kind.like(CPU), batch=8)
    assert clipped.name == kind.engine
    assert f"engine {kind.engine} on cpu, {clipped.rows} records at a time" in caplog.text


class Centred(nn.Module):
    """Subtracts the mean of the batch."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x.mean(0))


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "stack"])
@pytest.mark.parametrize("name", ["mlp", "images", "transformer", "recurrent"])
def test_mixing_is_refused_with_every_engine(name: str, engine: str) -> None:
    """Also an engine that takes records one by one does not hide that the model mixes them."""
    kind = KINDS[name]
    with pytest.raises(BadInput, match="do not add up"):
        probe(Centred(kind.model()), cross_entropy, kind.like(CPU), engine=engine)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "stack"])
def test_buffers_that_change_are_refused_with_every_engine(engine: str) -> None:
    """Running statistics would tell of records."""
    kind = KINDS["mlp"]
    model = nn.Sequential(nn.BatchNorm1d(4, affine=False), kind.model()).double()
    with pytest.raises(BadInput, match="num_batches_tracked"):
        probe(model, cross_entropy, kind.like(CPU), engine=engine)


def test_an_output_changed_in_place_by_hand_is_left_to_other_engines() -> None:
    """The ghost engine sees that an output is not what the layer gave, and Opacus refuses it."""

    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.score = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            found = self.inner(x)
            found *= 2
            return self.score(found)

    kind, model = KINDS["mlp"], Doubled().double()
    with pytest.raises(BadInput, match="output of inner is changed in place"):
        probe(model, cross_entropy, kind.like(CPU), engine="ghost")
    probe(model, cross_entropy, kind.like(CPU), engine="auto")
    assert make_clipper(model, cross_entropy, CLIP, like=kind.like(CPU)).name == "functional"
