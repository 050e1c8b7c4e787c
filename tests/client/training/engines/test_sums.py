"""Clipped sums: the same from every engine, and never moved by a record beyond the sensitivity."""

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from confide.client.training.descent import Schedule
from confide.client.training.engines.choice import ENGINES, make_clipper
from confide.client.training.engines.clipper import clipped_sum
from confide.client.training.private_training import train
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import (
    CLIP_UNITS,
    MOST_CHUNK,
    sensitivity,
)
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.training.private_trainings import (
    cross_entropy,
    fit,
    like,
    mlp,
    records,
    squares,
    weights,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)
BATCHED = [name for name in ENGINES if name != "single"]


@pytest.mark.parametrize("clip", [0.05, 1.0, 1e6])
@pytest.mark.parametrize(
    ("model", "loss"), [(nn.Linear(4, 3), cross_entropy), (mlp(), cross_entropy), (mlp(1), squares)]
)
def test_all_engines_agree(clip: float, model: nn.Module, loss: Any) -> None:
    """The clipped sums of a stack of linear layers are those of Opacus' per-record gradients,
    losses too; and so are those of every other engine."""
    features, labels = (torch.from_numpy(array) for array in records(60))
    targets = labels.double() if loss is squares else labels
    found = {}
    for engine in ENGINES:
        own = copy.deepcopy(model).double()
        clipped = make_clipper(own, loss, clip, engine=engine, like=like(features, targets))
        assert clipped.name == engine
        found[engine] = clipped(features, targets)
        assert found[engine][1].shape == (sum(parameter.numel() for parameter in own.parameters()),)
    for engine in ENGINES:
        for ours, theirs in zip(found[engine], found["hooks"], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-6)


def test_whole_trainings_agree_between_engines() -> None:
    """The same key gives the same weights whichever engine clips, up to rounding."""
    expected = weights(fit(engine="hooks").model)
    for engine in ("stack", "ghost", "functional"):
        np.testing.assert_allclose(weights(fit(engine=engine).model), expected, atol=1e-6)


def length(sums: NDArray[Any]) -> int:
    """The L2 norm of integers, rounded up, in Python's arithmetic."""
    square = sum(int(value) ** 2 for value in sums.tolist())
    return math.isqrt(square - 1) + 1 if square else 0


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_record_on_which_the_network_fails_has_no_share_and_changes_no_other(
    engine: str,
) -> None:
    """A label that the loss does not know raises an error. Wherever such records are, and when
    nothing but them is there, the others have the shares that they have without them; replacing a
    record by one moves a sum by no more than replacing it by any other."""
    given, known = records(44)
    features, targets, model = torch.from_numpy(given), torch.from_numpy(known), mlp().double()
    clipped = make_clipper(model, cross_entropy, 0.3, engine=engine, like=like(features, targets))

    def sums(rows: NDArray[Any], labels: Any) -> NDArray[np.int64]:
        losses, total = clipped(features[rows], labels[rows])
        assert torch.equal(losses.isfinite(), labels[rows] < 3)
        return np.rint(total.numpy()).astype(np.int64)

    everyone = np.arange(44)
    whole = sums(everyone, targets)
    most = sensitivity(len(whole))
    for failing in ([0], [43], [7, 8, 30], range(0, 44, 2), everyone):
        labels = targets.clone()
        labels[list(failing)] = 9
        with pytest.raises(Exception, match="out of bounds"):
            cross_entropy(mlp().double()(features), labels)
        rest = np.setdiff1d(everyone, failing)
        others = sums(rest, targets) if len(rest) else np.zeros_like(whole)
        assert length(sums(everyone, labels) - others) <= math.isqrt(len(whole)) + 1
        assert len(failing) > 1 or length(sums(everyone, labels) - whole) <= most
    # Nothing of a failure stays behind.
    assert np.array_equal(sums(everyone, targets), whole)


SIZES = (1.0, 1e3, 1e150, 1e-150, 5e-324, 1e-310, 1e19, 0.0, 1e300, np.inf, np.nan)


@pytest.mark.parametrize("clip", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("engine", BATCHED)
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
    clipped = make_clipper(model, cross_entropy, clip, engine=engine, like=like(features, targets))

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


@pytest.mark.parametrize("engine", list(ENGINES))
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
    given, target = torch.full((1, 4), size, dtype=torch.float64), torch.tensor([0])
    clipped = make_clipper(layer, cross_entropy, clip, engine=engine, like=like(given, target))
    total = float(clipped(given, target)[1].norm())
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
            "confide.client.training.engines.choice._most_rows", lambda *_, rows=rows: rows
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


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_batch_that_does_not_fit_is_split_and_the_step_is_the_same(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With memory for 1, 8, 64 or all records at a time the integer sums are the same."""
    given = records(200)
    features, targets = (torch.from_numpy(array) for array in given)
    found = []
    for rows in (1, 8, 64, MOST_CHUNK):
        monkeypatch.setattr(
            "confide.client.training.engines.choice._most_rows", lambda *_, rows=rows: rows
        )
        clipped = make_clipper(
            mlp().double(), cross_entropy, 0.5, engine=engine, like=like(features, targets)
        )
        assert clipped.rows == (1 if engine == "single" else rows)
        found.append(clipped_sum(clipped, (features, targets), np.arange(200), weights=131))
    for other in found[1:]:
        assert np.array_equal(found[0], other)


def test_models_with_many_weights_are_taken_with_fewer_records_at_a_time() -> None:
    """Gradients of each record are held for as many as fit into memory; a stack needs none."""

    def rows(outputs: int, engine: str) -> int:
        given, target = np.zeros((1, 1_000)), np.zeros(1, dtype=int)
        return make_clipper(
            nn.Sequential(nn.Linear(1_000, outputs)).double(),
            cross_entropy,
            1.0,
            engine=engine,
            like=like(given, target),
        ).rows

    assert [rows(outputs, "hooks") for outputs in (3, 100, 3_000)] == [256, 32, 1]
    assert rows(3_000, "stack") == 256
    with pytest.raises(BadInput, match="has 4004000 weights to train; accepted are 1 to 4000000"):
        rows(4_000, "stack")


def test_a_record_that_no_memory_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says how many numbers one record needs, and how many are accepted."""
    monkeypatch.setattr("confide.client.training.engines.choice._MOST_BYTES", 800)
    with pytest.raises(BadInput, match=r"needs \d+ numbers in memory for one record; .* most 100"):
        make_clipper(mlp().double(), cross_entropy, 1.0, like=like(*records(2)))


def units(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)
