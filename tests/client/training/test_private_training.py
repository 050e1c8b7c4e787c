"""Private training: what it learns, what it costs, where its noise and its batches come from."""

import numpy as np
import pytest
import torch
from torch import nn

from confide.client.training.descent import Schedule
from confide.client.training.private_training import COMPLETED, OUT_OF_BUDGET, train
from confide.client.training.randomness import poisson_batch, random_order, stream
from confide.client.training.scaling import public_scaling
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SEEDED, SeededEntropy, os_entropy
from confide.protocol.methods.training import NOISE
from confide.protocol.privacy.budgets import Budget
from confide.protocol.privacy.losses import Gaussian, SampledGaussian
from confide.protocol.privacy.profiles import Profile
from tests.support.private_training import (
    SCHEDULE,
    N,
    adam,
    cross_entropy,
    fit,
    mlp,
    records,
    weights,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)


def test_whole_trainings_agree_between_engines() -> None:
    """The same key gives the same weights whichever engine clips, up to rounding."""
    np.testing.assert_allclose(
        weights(fit(engine="stack").model), weights(fit(engine="opacus").model), atol=1e-6
    )


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


def test_scaling_by_public_bounds() -> None:
    """Public bounds map to [-1, 1], and what lies beyond them to their ends."""
    features = np.random.default_rng(0).normal([2.0, -1.0], [0.5, 1.5], size=(200, 2))
    bounds = public_scaling([-10, -10], [10, 10])
    assert np.abs(bounds(features * 100)).max() == 1.0
    np.testing.assert_allclose(bounds(features), features / 10)
    with pytest.raises(BadInput, match="low < high"):
        public_scaling(1.0, 0.0)
