"""A record's gradient has the same bits in any company, also with weights that aim at them."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from confide.client.training.computing import Computing
from confide.client.training.descent import one_thread
from confide.client.training.engines.choice import make_clipper
from confide.client.training.engines.clipper import (
    Clipper,
    clipped_sum,
    factors,
    padded,
    pieces,
    weighted_sum,
)
from confide.client.training.engines.fixed_shapes import fixed_shapes, without_dropout
from confide.client.training.engines.parts import Engine, GradientPart, Outer, Rows
from confide.client.training.local_round import Trainer
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.network_terms import described
from tests.support.networks.torch_models import KINDS
from tests.support.training.learners import TERMS, people
from tests.support.training.private_trainings import cross_entropy, like

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)
CPU = torch.device("cpu")
WIDTH, UNITS = 100, 8


class Network(nn.Module):
    """Two layers and a ReLU, in a form that is no stack."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, UNITS), nn.Linear(UNITS, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


def aimed(model: Network, features: Tensor) -> tuple[int, int] | None:
    """Set weights for which a unit of the first record is 0 in a batch of n, and not in one of
    n + 1; give n and the unit, or None if all batches round alike."""
    with torch.no_grad():
        model.first.bias.zero_()
        found = [model.first(features[:n])[0] for n in range(1, 18)]
        for n, (fewer, more) in enumerate(pairwise(found), start=1):
            units = torch.nonzero(more > fewer)
            if len(units):
                unit = int(units[0])
                # Every other unit is off, so the gradient of the record hangs by this one.
                model.first.bias.fill_(-1e6)
                model.first.bias[unit] = -fewer[unit]
                model.second.weight.copy_(torch.tensor([[1e3], [-1e3]]).expand(2, UNITS))
                model.second.bias.zero_()
                return n, unit
    return None


def moved(clipped: Clipper, records: tuple[Tensor, Tensor], n: int, model: nn.Module) -> float:
    """How far the sum of n + 1 records is from the sum of the first n and the share of the last."""
    weights = sum(value.numel() for value in model.parameters())
    fewer, more, own = (
        clipped_sum(clipped, records, rows, weights=weights)
        for rows in (np.arange(n), np.arange(n + 1), np.arange(n, n + 1))
    )
    return float(np.linalg.norm((more - fewer - own).astype(np.float64))) / CLIP_UNITS


@pytest.mark.parametrize("engine", ["ghost", "hooks", "functional", "single"])
def test_weights_aimed_at_a_relu_do_not_flip_a_record(engine: str) -> None:
    """One record more changes what a naive batch finds for the first record by far; with fixed
    shapes it adds its own share alone."""
    torch.manual_seed(0)
    model = Network().double()
    features = torch.randn(20, WIDTH, dtype=torch.float64)
    found = aimed(model, features)
    if found is None:
        pytest.skip("batches of all sizes round alike on this machine")
    n, unit = found
    # All other records are far from the edge.
    features[1:] = -1e3 * model.first.weight[unit].detach().sign()
    records = features, torch.zeros(20, dtype=torch.int64)
    clipped = make_clipper(model, cross_entropy, 1e-3, engine=engine, like=like(*records), batch=16)
    assert moved(clipped, records, n, model) < 1e-6
    if engine != "single":
        unpadded = replace(clipped, shapes=tuple(range(20, 0, -1)))
        assert moved(unpadded, records, n, model) > 1.0


@pytest.mark.parametrize("name", list(KINDS))
def test_losses_gradients_and_factors_have_the_same_bits_in_any_company(name: str) -> None:
    """At all shapes in use, at different places, beside other records and padding."""
    kind = KINDS[name]
    model, (features, targets) = without_dropout(kind.model()), kind.records(30)
    clipped = make_clipper(model, cross_entropy, 0.5, like=kind.like(CPU), batch=16)

    def traced(rows: list[int], shape: int) -> list[Tensor]:
        losses, parts = clipped.engine.trace(
            padded(features[rows], shape), padded(targets[rows], shape)
        )
        factor, _ = factors(losses.detach(), parts, 0.5)
        everything = [losses.detach(), factor, *(t for part in parts for t in part.tensors)]
        return [values[rows.index(7)].view(torch.int64) for values in everything]

    reference = traced([7], clipped.shapes[0])
    chance = np.random.default_rng(0)
    for shape in clipped.shapes:
        for size in {1, (shape + 1) // 2, shape}:
            others = [i for i in chance.permutation(30).tolist() if i != 7][: size - 1]
            rows = [*others[: size // 2], 7, *others[size // 2 :]]
            for ours, theirs in zip(traced(rows, shape), reference, strict=True):
                assert torch.equal(ours, theirs)


BROKEN = [np.nan, np.inf, -np.inf, 1e300]


@pytest.mark.parametrize("engine", ["auto", "hooks", "functional", "single"])
@pytest.mark.parametrize("name", ["mlp", "images", "sequences"])
def test_a_record_that_is_no_number_counts_as_0_and_spares_its_neighbours(
    name: str, engine: str
) -> None:
    """Not one bit of the other records' losses changes, and sums are those without it."""
    kind = replace(KINDS["half frozen"]) if name == "images" else KINDS[name]
    model, (features, targets) = kind.model(), kind.records(12)
    clipped = make_clipper(model, cross_entropy, 0.5, engine=engine, like=kind.like(CPU), batch=16)
    losses, sums = clipped(features[4:], targets[4:])
    for place, value in enumerate(BROKEN):
        features[place].view(-1)[:3] = value
    found, whole = clipped(features, targets)
    assert torch.equal(found[4:], losses)
    assert torch.equal(whole.round(), sums.round())


class Changed:
    """An engine whose gradients depend on the place of a record."""

    def __init__(self, inner: Engine, change: Any) -> None:
        self._inner, self._change = inner, change

    def trace(self, features: Tensor, targets: Tensor) -> tuple[Tensor, list[GradientPart]]:
        losses, parts = self._inner.trace(features, targets)
        (first, *others) = parts
        assert isinstance(first, Outer)
        return losses, [Outer(self._change(first.signal), first.given), *others]


def _one_bit(signal: Tensor) -> Tensor:
    """The last bit of the last of more than eight records differs."""
    signal = signal.clone()
    if len(signal) > 8:
        signal[-1] = torch.nextafter(signal[-1], torch.full_like(signal[-1], 9.0))
    return signal


def _by_place(signal: Tensor) -> Tensor:
    """The last bits differ at every place."""
    return signal * (1 + 2.0**-50 * torch.arange(len(signal), dtype=torch.float64).unsqueeze(1))


def _short_of_memory(signal: Tensor) -> Tensor:
    if len(signal) > 16:
        raise torch.OutOfMemoryError("planted")
    return signal


@pytest.mark.parametrize(
    ("change", "shapes"),
    [
        (lambda signal: signal, (32, 16, 8)),
        (_one_bit, (8,)),
        (_short_of_memory, (16, 8)),
        (lambda signal: signal * (1 + 2.0**-50 * (len(signal) > 8)), (32, 16)),
        (_by_place, (1,)),
    ],
)
def test_shapes_that_round_by_place_are_not_used(change: Any, shapes: tuple[int, ...]) -> None:
    """One bit at one place rules a shape out; shapes with other bits than the largest are left out;
    and one record at a time is what is left."""
    kind = KINDS["mlp"]
    rows = kind.like(CPU)
    engine = make_clipper(kind.model(), cross_entropy, 1.0, like=rows).engine
    assert fixed_shapes(Changed(engine, change), rows, 32) == shapes


def test_a_gradient_that_depends_on_other_rows_is_refused() -> None:
    """More than rounding is no matter of shapes."""
    kind = KINDS["mlp"]
    rows = kind.like(CPU)
    engine = make_clipper(kind.model(), cross_entropy, 1.0, like=rows).engine
    with pytest.raises(BadInput, match="depend on the rows beside them"):
        fixed_shapes(Changed(engine, lambda signal: signal - 1e-3 * signal.mean(0)), rows, 32)


@pytest.mark.parametrize("shapes", [(1,), (8,), (64, 32, 16, 8), (32, 8)])
def test_micro_batches_take_every_record_once_and_waste_little(shapes: tuple[int, ...]) -> None:
    """All records in order, in shapes that are allowed, and less than the least shape, or a quarter
    of the batch, is filled up."""
    for n in range(300):
        taken = list(pieces(n, shapes))
        assert [start for start, _, _ in taken] == [
            sum(size for _, size, _ in taken[:i]) for i in range(len(taken))
        ]
        assert sum(size for _, size, _ in taken) == n
        assert all(shape in shapes and size <= shape for _, size, shape in taken)
        assert sum(shape for _, _, shape in taken) - n <= max(shapes[-1] - 1, n / 3)


def test_parts_add_up_to_the_same_gradients() -> None:
    """Outer products and rows of the same gradients have the same norms and sums."""
    signal, given = (torch.randn(6, size, dtype=torch.float64) for size in (3, 4))
    outer, rows = Outer(signal, given), Rows(torch.einsum("ri,rj->rij", signal, given).flatten(1))
    losses = torch.zeros(6, dtype=torch.float64)
    (ours, _), (theirs, _) = (factors(losses, [part], 0.1) for part in (outer, rows))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(weighted_sum(ours, [outer]), weighted_sum(theirs, [rows]))


def test_a_round_takes_subnormal_numbers_for_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a processor many times as long, so that the time of a round would tell of records
    that lead to them: not in a forward pass nor in its derivatives. Elsewhere they stay."""

    def products() -> set[float]:
        small = torch.full((4, 4), 1e-160, dtype=torch.float64, requires_grad=True)
        total = (small @ small.detach()).sum()
        (backward,) = torch.autograd.grad((small * 1e-155 * 1e-155).sum(), small)
        return {total.item() > 0, bool(backward.max() > 0)}

    seen: list[set[float]] = []

    def spying(*given: Any) -> Tensor:
        seen.append(products())
        return weighted_sum(*given)

    monkeypatch.setattr("confide.client.training.engines.clipper.weighted_sum", spying)
    terms = replace(TERMS, **described("cnn image=1,2,2 channels=4", features=4, outputs=3))
    trainer = Trainer(terms, computing=Computing("cpu"))
    before = len(seen)
    features, labels = people(40, 1)
    trainer.learn(terms.network().first_weights(), features, labels, entropy=SeededEntropy(1))
    assert len(seen) >= before + terms.local_steps
    assert seen == [{False}] * len(seen)
    assert products() == {True}
    torch.set_flush_denormal(True)
    with one_thread(CPU):
        pass
    assert products() == {False}
    torch.set_flush_denormal(False)
