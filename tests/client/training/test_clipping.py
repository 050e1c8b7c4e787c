"""Clipped sums: both engines agree, and no record moves a sum by more than the sensitivity."""

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from confide.client.training.clipping import make_clipper
from confide.client.training.descent import Schedule
from confide.client.training.private_training import train
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import (
    CHUNK_BYTES,
    CLIP_UNITS,
    LEAST_CHUNK,
    MOST_CHUNK,
    sensitivity,
)
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.lattice import length
from tests.support.private_training import cross_entropy, mlp, records, squares, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)


@pytest.mark.parametrize("clip", [0.05, 1.0, 1e6])
@pytest.mark.parametrize(
    ("model", "loss"), [(nn.Linear(4, 3), cross_entropy), (mlp(), cross_entropy), (mlp(1), squares)]
)
def test_closed_form_equals_opacus(clip: float, model: nn.Module, loss: Any) -> None:
    """The clipped sums of a stack of linear layers are those of Opacus' per-record gradients,
    losses too."""
    features, labels = (torch.from_numpy(array) for array in records())
    targets = labels.double() if loss is squares else labels
    found = {}
    for engine in ("stack", "opacus"):
        own = copy.deepcopy(model).double()
        found[engine] = make_clipper(own, loss, clip, engine)(features, targets)
        assert found[engine][1].shape == (sum(parameter.numel() for parameter in own.parameters()),)
    for ours, theirs in zip(found["stack"], found["opacus"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-6)


SIZES = (1.0, 1e3, 1e150, 1e-150, 5e-324, 1e-310, 1e19, 0.0, 1e300, np.inf, np.nan)


@pytest.mark.parametrize("clip", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("engine", ["stack", "opacus"])
@pytest.mark.parametrize("scale", [1.0, 1e10, 1e-160])
def test_no_record_moves_a_sum_by_more_than_the_sensitivity(
    engine: str, clip: float, scale: float
) -> None:
    """Records of all sizes, subnormal, infinite and no numbers too, under small and large weights:
    left out, one moves the integer sums by at most `sensitivity`, replaced by twice that, and alone
    it has a clipping length."""
    rng = np.random.default_rng(0)
    given, labels = records(44)
    features = torch.from_numpy(given * np.repeat(SIZES, 4)[:, None])
    features[1, 2] = 1e200
    targets, model = torch.from_numpy(labels), mlp().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    clipped = make_clipper(model, cross_entropy, clip, engine)

    def sums(rows: NDArray[Any]) -> NDArray[np.int64]:
        return np.rint(clipped(features[rows], targets[rows])[1].numpy()).astype(np.int64)

    everyone = np.arange(44)
    whole = sums(everyone)
    most = sensitivity(len(whole))
    for i in everyone:
        assert length(whole - sums(np.delete(everyone, i))) <= most
        assert length(whole - sums(np.where(everyone == i, rng.integers(44), everyone))) <= 2 * most
        assert length(sums(everyone[i : i + 1])) <= CLIP_UNITS + math.isqrt(len(whole)) // 2 + 1
    assert length(whole) > 0


@pytest.mark.parametrize("engine", ["stack", "opacus"])
@pytest.mark.parametrize(
    ("size", "odds"),
    [(1e19, 53.0), (1e50, 130.0), (1e59, 120.0), (1e55, 150.0), (1e59, 300.0), (1e-40, 0.0)],
)
def test_no_gradient_escapes_clipping(engine: str, size: float, odds: float) -> None:
    """Inputs so large and signals so small that squares would vanish: a share is as long as the
    gradient, or as the clip."""
    clip = 1e-6
    layer = nn.Linear(4, 2).double()
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([odds, 0.0]))
    clipped = make_clipper(layer, nn.CrossEntropyLoss(reduction="none"), clip, engine)
    total = float(
        clipped(torch.full((1, 4), size, dtype=torch.float64), torch.tensor([0]))[1].norm()
    )
    # The signals are 1 / (1 + e^odds) and its opposite, which is 0 where the probability rounds to
    # 1.
    signal = 1 / (1 + math.exp(odds))
    norm = math.sqrt(signal**2 + (1 - 1 / (1 + math.exp(-odds))) ** 2) * math.sqrt(4 * size**2 + 1)
    np.testing.assert_allclose(total, CLIP_UNITS * min(norm / clip, 1.0), rtol=2e-6)


def test_sums_of_many_chunks_are_rounded_once_and_get_integer_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step's update is a whole number of lattice units: batches of any number of chunks are added
    before they are rounded."""
    features, labels = records(50)
    schedule = Schedule(noise_multiplier=1e-9, sampling_rate=1.0, steps=1, clip=1.0, batch=1.0)
    moves = []
    for rows in (MOST_CHUNK, 7, 1):
        monkeypatch.setattr(
            "confide.client.training.clipping.chunk_rows", lambda _, rows=rows: rows
        )
        model = nn.Linear(4, 3).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        trained = train(
            model,
            features,
            labels,
            loss=cross_entropy,
            schedule=schedule,
            entropy=SeededEntropy(3),
            optimizer=units,
        )
        moved = weights(trained.model) * CLIP_UNITS
        assert np.array_equal(moved, np.rint(moved))
        assert np.abs(moved).max() > CLIP_UNITS / 100
        moves.append(moved)
    # Rounding fifty records one by one would be off by several units somewhere.
    assert max(np.abs(moves[0] - other).max() for other in moves[1:]) <= 1


def test_models_with_many_weights_are_taken_with_fewer_records_at_a_time() -> None:
    """Gradients of each record are held for as many as fit into memory, and not at all where 256 do
    not; a stack needs none."""

    def rows(outputs: int, engine: str) -> int:
        return make_clipper(
            nn.Sequential(nn.Linear(1_000, outputs)).double(), cross_entropy, 1.0, engine
        ).rows

    assert [rows(outputs, "opacus") for outputs in (3, 20, 1_000)] == [
        MOST_CHUNK,
        CHUNK_BYTES // 8 // 20_020,
        LEAST_CHUNK,
    ]
    with pytest.raises(
        BadInput,
        match=(
            "needs 1101100 numbers in memory for each of 256 records at a time; accepted are at "
            "most"
        ),
    ):
        rows(1_100, "opacus")
    assert rows(1_100, "stack") == MOST_CHUNK
    with pytest.raises(BadInput, match="has 4004000 weights to train; accepted are 1 to 4000000"):
        rows(4_000, "stack")


def units(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)
