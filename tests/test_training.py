import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from client.chance import gaussian, poisson_batch, random_order, stream
from client.clipping import make_clipper, stack_of
from client.descent import FLOATING_POINT, Schedule, pick_device
from client.federated import Share, average, federated_average
from client.scaling import private_scaling, public_scaling
from client.training import COMPLETED, OUT_OF_BUDGET, Diverged, Trained, train
from protocol.budget import Budget
from protocol.errors import BadInput
from protocol.mechanisms import Gaussian, SampledGaussian
from protocol.profile import Profile, parallel
from protocol.sampling import OPERATING_SYSTEM, SEEDED, Entropy, SeededEntropy, os_entropy

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning")
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
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, outputs))


def weights(model: nn.Module) -> NDArray[Any]:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()]).numpy()


def fit(seed: int = 1, **changes: Any) -> Trained:
    features, labels = records()
    options: dict[str, Any] = {"loss": cross_entropy, "schedule": SCHEDULE, "optimizer": sgd, "entropy": SeededEntropy(seed)}
    return train(mlp(), features, labels, **(options | changes))


class OneOfAKind(nn.Module):
    """The same function as `mlp`, in a form that only Opacus can take apart."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.parametrize("clip", [0.05, 1.0, 1e6])
@pytest.mark.parametrize(("model", "loss"), [(nn.Linear(4, 3), cross_entropy), (mlp(), cross_entropy), (mlp(1), squares)])
def test_closed_form_equals_opacus(clip: float, model: nn.Module, loss: Any) -> None:
    """The clipped sums of a stack of linear layers are those of Opacus' per-record gradients, losses too."""
    features = torch.from_numpy(records()[0]).float()
    labels = torch.from_numpy(records()[1])
    targets = labels.float() if loss is squares else labels
    found = {}
    for engine in ("stack", "opacus"):
        own = copy.deepcopy(model)
        losses = make_clipper(own, loss, clip, engine)(features, targets)
        found[engine] = [losses.numpy()] + [p.grad.numpy() for p in own.parameters() if p.grad is not None]
    assert len(found["stack"]) == 1 + len(list(model.parameters()))
    for ours, theirs in zip(found["stack"], found["opacus"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_whole_trainings_agree_between_engines() -> None:
    """The same key gives the same weights whichever engine clips, up to rounding."""
    np.testing.assert_allclose(weights(fit(engine="stack").model), weights(fit(engine="opacus").model), atol=1e-4)


def test_no_record_moves_a_sum_by_more_than_the_clip() -> None:
    """Leaving one record out changes the clipped sum by at most the clipping norm, an outlier included."""
    features, labels = (torch.from_numpy(array) for array in records(40))
    features = features.float()
    features[0] *= 1e6
    model, sums = mlp(), []
    clipped = make_clipper(model, cross_entropy, 0.3)
    for first in (0, 1):
        clipped(features[first:], labels[first:])
        sums.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert 0.25 < float((sums[0] - sums[1]).norm()) <= 0.3 * (1 + 1e-5)


def test_private_training_learns_and_says_what_it_cost() -> None:
    """Accuracy is far above chance, and the result carries steps, profile, randomness and the kind of noise."""
    features, labels = records()
    trained = fit(schedule=Schedule(1.0, 0.1, 150, 1.0, 0.1 * N), optimizer=adam)
    guesses = trained.model(torch.from_numpy(features).float()).argmax(dim=1).numpy()
    assert (guesses == labels).mean() > 0.9
    assert (trained.steps, trained.stopped, trained.noise) == (150, COMPLETED, FLOATING_POINT)
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
    """Sizes vary as a binomial's do and records join independently: fixed or shuffled batches would fail here."""
    key, n, rate = bytes(32), 500, 0.04
    joined = np.zeros((2000, n))
    for step in range(2000):
        joined[step, poisson_batch(n, rate, stream(key, step))] = 1
    sizes = joined.sum(axis=1)
    assert abs(sizes.mean() - n * rate) < 4 * np.sqrt(n * rate * (1 - rate) / 2000)
    assert 0.85 < sizes.var() / (n * rate * (1 - rate)) < 1.15
    assert abs(np.corrcoef(joined[:-1].ravel(), joined[1:].ravel())[0, 1]) < 0.005


def test_noise_has_its_scale_and_empty_batches_get_it_too() -> None:
    """With batches that are all but empty, a step's update is the noise alone, at noise times clip over batch."""
    features, labels = records(2)
    schedule = Schedule(noise_multiplier=2.0, sampling_rate=1e-6, steps=400, clip=0.5, batch=10.0)
    trained = train(
        nn.Linear(4, 3), features, labels, loss=cross_entropy, schedule=schedule, entropy=SeededEntropy(3),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    )  # fmt: skip
    moved = np.array([weights(trained.model)])
    assert trained.steps == 400
    assert 0.6 < moved.std() / (2.0 * 0.5 / 10.0 * np.sqrt(400)) < 1.6
    draws = gaussian(200_000, SeededEntropy(0))
    np.testing.assert_allclose([draws.mean(), draws.std(), (draws**4).mean()], [0, 1, 3], atol=0.05)


def test_training_does_not_depend_on_the_order_of_the_records() -> None:
    """Records are put in a uniformly random order first, so every order of the input has the same law of outcomes."""
    orders = np.array([random_order(SeededEntropy(i)(32), 4) for i in range(3000)])
    counts = np.array([[np.mean(orders[:, place] == record) for record in range(4)] for place in range(4)])
    np.testing.assert_allclose(counts, 0.25, atol=0.04)


def test_training_stops_before_the_budget_is_passed() -> None:
    """The model kept is within the budget, what was spent before included, and one more step would not be."""
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
    """Resumed training repeats the draws of the steps lost, whatever source it is given; a finished file holds no key."""
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
    """After kill -9 in the middle, a second process finishes with the weights of a run that was never killed."""
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom tests.test_training import *\n"
        "trained = fit(checkpoint=Path(sys.argv[1]), every=5, progress=lambda *_: time.sleep(float(sys.argv[2])))\n"
        "np.save(sys.argv[1] + '.npy', weights(trained.model))\n"
    )
    path = tmp_path / "state.pt"
    command = [sys.executable, "-c", program, str(path)]
    process = subprocess.Popen([*command, "5"], cwd=Path(__file__).parent.parent)
    for _ in range(600):
        if path.exists() and torch.load(path, weights_only=True)["step"] > 0:
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < torch.load(path, weights_only=True)["step"] < SCHEDULE.steps
    subprocess.run([*command, "0"], cwd=Path(__file__).parent.parent, check=True)
    assert np.array_equal(np.load(f"{path}.npy"), weights(fit().model))


def test_a_checkpoint_is_for_its_own_records_and_settings(tmp_path: Path) -> None:
    """Other records, another schedule or a broken file are refused: a key never meets other records."""
    path = tmp_path / "state.pt"
    fit(checkpoint=path)
    features, labels = records(seed=9)
    with pytest.raises(BadInput, match="other records or settings"):
        train(mlp(), features, labels, loss=cross_entropy, schedule=SCHEDULE, optimizer=sgd, checkpoint=path)
    with pytest.raises(BadInput, match="other records or settings"):
        fit(checkpoint=path, schedule=Schedule(2.0, 0.05, 60, 1.0, 30.0))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BadInput, match="cannot be read as a checkpoint"):
        fit(checkpoint=path)


def test_a_loss_that_is_no_number_ends_training_and_keeps_the_last_good_model() -> None:
    """Diverging training is a clear error that carries the model of the last checkpoint and charges every step taken."""
    calls = []

    def breaks(outputs: Tensor, labels: Tensor) -> Tensor:
        calls.append(1)
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
    [({"loss": F.cross_entropy}, "one number a record"), ({"engine": "fast"}, "'stack'"), ({"device": "tpu"}, "'cpu'")],
)
def test_unusable_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    """Every refusal names what was found and what is accepted."""
    with pytest.raises(BadInput, match=message):
        fit(**changes)


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
        train(mlp(), np.full((N, 4), np.inf), labels, loss=cross_entropy, schedule=SCHEDULE, optimizer=sgd)
    with pytest.raises(BadInput, match="as many of both"):
        train(mlp(), features[:-1], labels, loss=cross_entropy, schedule=SCHEDULE, optimizer=sgd)


def share(key: int, *, seed: int = 0, noise: float = 1.0, weight: float = 1.0) -> Share:
    features, labels = records(seed=seed)
    return Share(features, labels, Schedule(noise, 0.05, 60, 1.0, 30.0), SeededEntropy(key)(32), weight)


def test_one_owner_averaged_is_plain_training() -> None:
    """Rounds of local steps of a single owner are the steps of one training, weights and profile alike."""
    together = federated_average(mlp(), [share(1)], rounds=6, local=10, loss=cross_entropy, optimizer=sgd)
    alone = fit()
    np.testing.assert_allclose(weights(together.model), weights(alone.model), atol=1e-6)
    assert (together.profile, together.steps) == (alone.profile, (60,))


def test_owners_compose_in_parallel_and_stop_at_their_budgets() -> None:
    """Every owner stays within the budget by itself; the noisier one goes on longer; the whole costs the worst of them."""
    budget = Budget(2.0, 1e-5)
    owners = [share(1, noise=1.0), share(2, seed=1, noise=1.1)]
    result = federated_average(mlp(), owners, rounds=6, local=5, loss=cross_entropy, optimizer=sgd, budget=budget)
    assert 0 < result.steps[0] < result.steps[1] <= 30
    assert budget.allows(result.profile)
    parts = [owner.schedule.profile(steps, spent=Profile()) for owner, steps in zip(owners, result.steps, strict=True)]
    assert result.profile == parallel(*parts)
    with pytest.raises(BadInput, match="same key"):
        federated_average(mlp(), [share(1), share(1)], rounds=1, local=1, loss=cross_entropy, optimizer=sgd)


def test_averages_are_weighted_means() -> None:
    """Counts weigh the owners, and must fit them."""
    one, two = {"w": torch.zeros(2)}, {"w": torch.full((2,), 4.0)}
    assert average([one, two], [1, 3])["w"].tolist() == [3.0, 3.0]
    with pytest.raises(BadInput, match="count >= 0 each"):
        average([one, two], [1.0])


def test_scaling_by_public_bounds_and_by_private_statistics() -> None:
    """Public bounds map to [-1, 1]; private statistics are near the true ones, and their release is charged for."""
    rng = np.random.default_rng(0)
    features = rng.normal([2.0, -1.0], [0.5, 1.5], size=(20_000, 2))
    bounds = public_scaling([-10, -10], [10, 10])
    assert np.abs(bounds(features * 100)).max() == 1.0
    scaling, cost = private_scaling(features, bounds, mu=0.5, entropy=SeededEntropy(0))
    np.testing.assert_allclose(scaling(features).mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(scaling(features).std(axis=0), 1, atol=0.1)
    assert cost == Gaussian(0.5)
    trained = fit(spent=Profile().then(cost))
    assert trained.profile == Profile().then(Gaussian(0.5), SampledGaussian(1.0, 0.05, 60))
    with pytest.raises(BadInput, match="low < high"):
        public_scaling(1.0, 0.0)
