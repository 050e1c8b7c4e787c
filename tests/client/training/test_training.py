import copy
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.descent import Schedule, pick_device
from confide.client.training.engines import make_clipper, stack_of
from confide.client.training.private_training import (
    COMPLETED,
    OUT_OF_BUDGET,
    Diverged,
    Trained,
    train,
)
from confide.client.training.randomness import poisson_batch, random_order, stream
from confide.client.training.scaling import public_scaling
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import (
    CHUNK_BYTES,
    CLIP_UNITS,
    LEAST_CHUNK,
    MOST_BATCH,
    MOST_CHUNK,
    sensitivity,
)
from confide.protocol.exact.sampling import (
    OPERATING_SYSTEM,
    SEEDED,
    Entropy,
    SeededEntropy,
    os_entropy,
)
from confide.protocol.methods.training import NOISE
from confide.protocol.privacy.budgets import Budget
from confide.protocol.privacy.losses import Gaussian, SampledGaussian
from confide.protocol.privacy.profiles import Profile
from tests.support.places import ROOT

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)

N = 600
SCHEDULE = Schedule(noise_multiplier=1.0, sampling_rate=0.05, steps=60, clip=1.0, batch=0.05 * N)


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).square() / 2


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5)


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def records(n: int = N, *, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Three well separated classes in four dimensions."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    centres = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]])
    return centres[labels] + 0.2 * rng.normal(size=(n, 4)), labels


def mlp(outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, outputs)
    )


def weights(model: nn.Module) -> NDArray[Any]:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()]).numpy()


def fit(seed: int = 1, **changes: Any) -> Trained:
    features, labels = records()
    options: dict[str, Any] = {
        "loss": cross_entropy,
        "schedule": SCHEDULE,
        "optimizer": sgd,
        "entropy": SeededEntropy(seed),
    }
    return train(mlp(), features, labels, **(options | changes))


class OneOfAKind(nn.Module):
    """The same function as `mlp`, in a form that only Opacus can take apart."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


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
    for engine in ("stack", "hooks"):
        own = copy.deepcopy(model).double()
        found[engine] = make_clipper(own, loss, clip, engine)(features, targets)
        assert found[engine][1].shape == (sum(parameter.numel() for parameter in own.parameters()),)
    for ours, theirs in zip(found["stack"], found["hooks"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-6)


def test_whole_trainings_agree_between_engines() -> None:
    """The same key gives the same weights whichever engine clips, up to rounding."""
    np.testing.assert_allclose(
        weights(fit(engine="stack").model), weights(fit(engine="hooks").model), atol=1e-6
    )


def length(sums: NDArray[Any]) -> int:
    """The L2 norm of integers, rounded up, in Python's arithmetic."""
    square = sum(int(value) ** 2 for value in sums.tolist())
    return math.isqrt(square - 1) + 1 if square else 0


SIZES = (1.0, 1e3, 1e150, 1e-150, 5e-324, 1e-310, 1e19, 0.0, 1e300, np.inf, np.nan)


@pytest.mark.parametrize("clip", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("engine", ["stack", "hooks"])
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


@pytest.mark.parametrize("engine", ["stack", "hooks"])
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

    assert [rows(outputs, "hooks") for outputs in (3, 20, 1_000)] == [
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
        rows(1_100, "hooks")
    assert rows(1_100, "stack") == MOST_CHUNK
    with pytest.raises(BadInput, match="has 4004000 weights to train; accepted are 1 to 4000000"):
        rows(4_000, "stack")


def units(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


def test_private_training_learns_and_says_what_it_cost() -> None:
    """Accuracy is far above chance, and the result carries steps, profile, randomness and the kind
    of noise."""
    features, labels = records()
    trained = fit(schedule=Schedule(1.0, 0.1, 150, 1.0, 0.1 * N), optimizer=adam)
    guesses = trained.model(torch.from_numpy(features).float()).argmax(dim=1).numpy()
    assert (guesses == labels).mean() > 0.9
    assert (trained.steps, trained.stopped, trained.noise) == (150, COMPLETED, NOISE)
    assert trained.profile == Profile().then(SampledGaussian(1.0, 0.1, 150))
    assert trained.randomness == SEEDED
    assert fit(entropy=os_entropy).randomness == OPERATING_SYSTEM


def test_seeds_repeat_and_differ() -> None:
    """One seed is one result, another seed another; the model given is left as it was."""
    given = weights(mlp())
    assert np.array_equal(weights(fit().model), weights(fit().model))
    assert not np.allclose(weights(fit().model), weights(fit(seed=2).model), atol=1e-3)
    assert np.array_equal(weights(mlp()), given)


def test_batches_are_poisson_samples() -> None:
    """Sizes vary as a binomial's do and records join independently: fixed or shuffled batches would
    fail here."""
    key, n, rate = bytes(32), 500, 0.04
    joined = np.zeros((2000, n))
    for step in range(2000):
        joined[step, poisson_batch(n, rate, stream(key, step))] = 1
    sizes = joined.sum(axis=1)
    assert abs(sizes.mean() - n * rate) < 4 * np.sqrt(n * rate * (1 - rate) / 2000)
    assert 0.85 < sizes.var() / (n * rate * (1 - rate)) < 1.15
    assert abs(np.corrcoef(joined[:-1].ravel(), joined[1:].ravel())[0, 1]) < 0.005


def test_noise_has_its_scale_and_empty_batches_get_it_too() -> None:
    """With batches that are all but empty, a step's update is the noise alone, at noise times clip
    over batch."""
    features, labels = records(2)
    schedule = Schedule(noise_multiplier=2.0, sampling_rate=1e-6, steps=400, clip=0.5, batch=10.0)
    trained = train(
        nn.Linear(4, 3),
        features,
        labels,
        loss=cross_entropy,
        schedule=schedule,
        entropy=SeededEntropy(3),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    )
    moved = np.array([weights(trained.model)])
    assert trained.steps == 400
    assert 0.6 < moved.std() / (2.0 * 0.5 / 10.0 * np.sqrt(400)) < 1.6


def test_training_does_not_depend_on_the_order_of_the_records() -> None:
    """Records are put in a uniformly random order first, so every order of the input has the same
    law of outcomes."""
    orders = np.array([random_order(SeededEntropy(i)(32), 4) for i in range(3000)])
    counts = np.array(
        [[np.mean(orders[:, place] == record) for record in range(4)] for place in range(4)]
    )
    np.testing.assert_allclose(counts, 0.25, atol=0.04)


def test_training_stops_before_the_budget_is_passed() -> None:
    """The model kept is within the budget, what was spent before included, and one more step would
    not be."""
    budget, spent = Budget(2.5, 1e-5), Profile().then(Gaussian(0.05))
    trained = fit(budget=budget, spent=spent)
    assert trained.stopped == OUT_OF_BUDGET
    assert 0 < trained.steps < SCHEDULE.steps
    assert budget.allows(trained.profile)
    assert not budget.allows(SCHEDULE.profile(trained.steps + 1, spent=spent))
    shorter = fit(schedule=Schedule(1.0, 0.05, trained.steps, 1.0, SCHEDULE.batch))
    assert np.array_equal(weights(trained.model), weights(shorter.model))


class Killed(Exception):
    """Stands for the end of a process."""


@pytest.mark.parametrize("second", [SeededEntropy(2), os_entropy])
def test_resumed_training_equals_an_undisturbed_one(second: Entropy, tmp_path: Path) -> None:
    """Resumed training repeats the draws of the steps lost, whatever source it is given; a finished
    file holds no key."""
    path = tmp_path / "state.pt"

    def kill(step: int, steps: int) -> None:
        if step == 40:
            raise Killed

    whole = fit(optimizer=adam)
    with pytest.raises(Killed):
        fit(optimizer=adam, checkpoint=path, every=20, progress=kill)
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    for _ in range(2):
        resumed = fit(entropy=second, optimizer=adam, checkpoint=path, every=20)
        assert (resumed.steps, resumed.randomness) == (SCHEDULE.steps, SEEDED)
        assert np.array_equal(weights(whole.model), weights(resumed.model))
    assert torch.load(path, weights_only=True)["key"] == ""


def test_a_killed_process_resumes(tmp_path: Path) -> None:
    """After kill -9 in the middle, a second process finishes with the weights of a run that was
    never killed."""
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tests.client.training.test_training import *\n"
        "trained = fit(checkpoint=Path(sys.argv[1]), every=5, progress=lambda *_: "
        "time.sleep(float(sys.argv[2])))\n"
        "np.save(sys.argv[1] + '.npy', weights(trained.model))\n"
    )
    path = tmp_path / "state.pt"
    command = [sys.executable, "-c", program, str(path)]
    process = subprocess.Popen([*command, "5"], cwd=ROOT)
    for _ in range(600):
        if path.exists() and torch.load(path, weights_only=True)["step"] > 0:
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < torch.load(path, weights_only=True)["step"] < SCHEDULE.steps
    subprocess.run([*command, "0"], cwd=ROOT, check=True)
    assert np.array_equal(np.load(f"{path}.npy"), weights(fit().model))


def test_a_checkpoint_is_for_its_own_records_and_settings(tmp_path: Path) -> None:
    """Other records, another schedule or a broken file are refused: a key never meets other
    records."""
    path = tmp_path / "state.pt"
    fit(checkpoint=path)
    features, labels = records(seed=9)
    with pytest.raises(BadInput, match="other records or settings"):
        train(
            mlp(),
            features,
            labels,
            loss=cross_entropy,
            schedule=SCHEDULE,
            optimizer=sgd,
            checkpoint=path,
        )
    with pytest.raises(BadInput, match="other records or settings"):
        fit(checkpoint=path, schedule=Schedule(2.0, 0.05, 60, 1.0, 30.0))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BadInput, match="cannot be read as a checkpoint"):
        fit(checkpoint=path)


def test_a_loss_that_is_no_number_ends_training_and_keeps_the_last_good_model() -> None:
    """Diverging training is a clear error that carries the model of the last checkpoint and charges
    every step taken."""
    calls = []

    def breaks(outputs: Tensor, labels: Tensor) -> Tensor:
        # A step has some thirty records; before the first the loss is tried on fewer made-up ones.
        calls.extend([1] if len(labels) > 7 else [])
        return cross_entropy(outputs, labels) * (float("nan") if len(calls) > 27 else 1.0)

    with pytest.raises(Diverged, match="after 27 steps; the model after 20 is kept") as caught:
        fit(loss=breaks, every=10)
    last = caught.value.last
    assert np.isfinite(weights(last.model)).all()
    assert last.profile == Profile().then(SampledGaussian(1.0, 0.05, 27))


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


def test_scaling_by_public_bounds() -> None:
    """Public bounds map to [-1, 1], and what lies beyond them to their ends."""
    features = np.random.default_rng(0).normal([2.0, -1.0], [0.5, 1.5], size=(200, 2))
    bounds = public_scaling([-10, -10], [10, 10])
    assert np.abs(bounds(features * 100)).max() == 1.0
    np.testing.assert_allclose(bounds(features), features / 10)
    with pytest.raises(BadInput, match="low < high"):
        public_scaling(1.0, 0.0)
