"""Private training: its batches, noise, budget, results and refusals."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.descent import Schedule, pick_device
from confide.client.training.engines.choice import make_clipper
from confide.client.training.engines.closed_form import stack_of
from confide.client.training.private_training import (
    COMPLETED,
    OUT_OF_BUDGET,
    Diverged,
    train,
)
from confide.client.training.randomness import poisson_batch, random_order, stream
from confide.client.training.scaling import public_scaling
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import (
    MOST_BATCH,
)
from confide.protocol.exact.sampling import (
    OPERATING_SYSTEM,
    SEEDED,
    Entropy,
    SeededEntropy,
    os_entropy,
)
from confide.protocol.methods.training.terms import NOISE
from confide.protocol.privacy.budgets import Budget
from confide.protocol.privacy.losses import Gaussian, SampledGaussian
from confide.protocol.privacy.profiles import Profile
from tests.support.training.private_trainings import (
    SCHEDULE,
    N,
    OneOfAKind,
    adam,
    cross_entropy,
    fit,
    like,
    mlp,
    records,
    sgd,
    squares,
    weights,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)


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


def test_a_loss_that_is_no_number_ends_training_and_keeps_the_last_good_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Diverging training is a clear error that carries the model of the last checkpoint and charges
    every step taken."""
    steps = []

    def batch(n: int, sampling_rate: float, entropy: Entropy) -> NDArray[np.int64]:
        steps.append(n)
        return poisson_batch(n, sampling_rate, entropy)

    def breaks(outputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(outputs, labels) * (float("nan") if len(steps) > 27 else 1.0)

    monkeypatch.setattr("confide.client.training.descent.poisson_batch", batch)

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
        make_clipper(
            OneOfAKind().double(), cross_entropy, 1.0, engine="stack", like=like(features, labels)
        )
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
        make_clipper(mlp(), cross_entropy, 1.0, like=like(features, labels))
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
