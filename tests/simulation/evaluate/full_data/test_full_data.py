"""Methods that train and calibrate on the same records: bounds, budgets, requests refused."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from confide.aggregator.procedures.full_data.levels import (
    Stability,
    Transfer,
    black_box_floor,
    dpcp_level,
    never_selected_bound,
)
from confide.aggregator.quantiles.gaussian import GaussianSearch, NoisyMidpoint
from confide.aggregator.quantiles.published import dpcp_rank
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.privacy.budgets import Budget, noise_multiplier
from confide.protocol.privacy.losses import Gaussian, Pure, SampledGaussian
from confide.protocol.privacy.profiles import RDP, Profile
from confide.simulation.data.synthetic import Clusters, located
from confide.simulation.evaluate.full_data.learners import Location, Memoriser
from confide.simulation.evaluate.full_data.networks import Labels, NetworkLearner, Numbers, Recipe
from confide.simulation.evaluate.full_data.pipelines import PIPELINES, certified, scp_f, split
from confide.simulation.evaluate.full_data.terms import MIXED, PipelineTerms
from tests.support.truth.known import assert_follows

DELTA = 1e-5
BUDGET = Budget(2.0, DELTA)


FULL = ("certified", "dpcp", "scp-f", "scp-a", "differential")
HALVES = ("split", "split-certified", "pscp")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def training() -> Profile:
    """DP-SGD that is (1, 1e-5)-DP."""
    noise = noise_multiplier(Budget(1.0, DELTA), sampling_rate=0.01, steps=1000)
    return Profile().then(SampledGaussian(noise, 0.01, 1000))


def test_the_whole_profile_is_worth_a_higher_level(training: Profile) -> None:
    """At (1, 1e-5) and alpha 0.1 one point of the profile leaves level 0.037 and the whole of it
    about 0.06."""
    assert dpcp_level(alpha=0.1, epsilon=1.0, delta=DELTA) == pytest.approx(0.0368, abs=1e-4)
    assert 0.058 < Transfer.of(training, alpha=0.1, beta=1e-3).level(10_000) < 0.063


def test_the_certified_rank_follows_n_by_single_steps() -> None:
    """The rank is ceil((1 - a')(n+1)), and one more record raises it by 0 or 1: what private
    quantiles rely on."""
    transfer = Transfer.of(Profile().then(Gaussian(0.3)), alpha=0.1, beta=1e-3)
    ranks = [transfer.rank(n) for n in range(50, 3_000)]
    assert set(np.diff(ranks).tolist()) == {0, 1}
    for n in (50, 1_000, 2_999):
        assert transfer.rank(n) == math.ceil((1 - transfer.level(n)) * (n + 1) - 1e-9)


def test_floors_of_a_gaussian_training_are_its_trade_off_curve() -> None:
    """f(a0) is Phi(Phi^-1(1 - a0) - mu), from below, and never above the sharper (1 - beta)
    f(alpha) it rests on."""
    for mu, alpha, beta in ((0.2, 0.1, 1e-3), (1.0, 0.1, 0.05), (3.0, 0.3, 0.01)):
        floor = black_box_floor(Profile().then(Gaussian(mu)), alpha=alpha, beta=beta)
        exact = norm.cdf(norm.isf(alpha + beta - alpha * beta) - mu)
        assert exact - 1e-4 <= floor <= exact
        assert floor <= (1 - beta) * norm.cdf(norm.isf(alpha) - mu)


def test_published_bounds_are_the_published_formulas() -> None:
    """Regime I, Theorem 3 and its buffer at numbers worked out by hand."""
    never = never_selected_bound(alpha=0.1, beta=0.01, n=999, sampling_rate=0.01, steps=2)
    assert never == pytest.approx(0.99 * (0.9 - 3 * 0.0199 - 0.001))
    assert never_selected_bound(alpha=0.1, beta=0.01, n=999, sampling_rate=0.01, steps=500) == 0.0
    stability = Stability(lipschitz=2.0, density=3.0, distance=0.001, probability=0.01)
    assert stability.buffer(1000) == 600
    assert stability.bound(alpha=0.1, beta=0.01, n=999) == pytest.approx(
        0.99 * (0.9 - 0.012 - 0.03 - 0.001)
    )


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.5, 34.29), (1.0, 18.09), (2.0, 9.61)])
def test_noise_of_the_search_is_that_of_the_paper(epsilon: float, sigma: float) -> None:
    """Twenty queries within (epsilon, 1e-5) by RDP need the sigma of SCP Tables S1 to S3."""
    terms = PipelineTerms(13_671, Budget(epsilon, DELTA, RDP), bins=1 << 20)
    quantile = split(terms, Memoriser(100)).quantile
    assert isinstance(quantile, NoisyMidpoint)
    assert math.sqrt(quantile.variance) == pytest.approx(sigma, rel=2e-3)


@pytest.mark.parametrize("method", PIPELINES)
def test_every_method_says_what_it_is_worth(method: str) -> None:
    """Certificates, levels, floors and adjacency of every method: nothing is called certified that
    is not proved."""
    pipeline = PIPELINES[method](PipelineTerms(5_000, BUDGET), Memoriser(64))
    promise, expected = (
        pipeline.promise,
        {
            "certified": "certified",
            "dpcp": "conditional on assumptions",
            "scp-f": "floors only",
            "scp-a": "asymptotic only",
            "split": "none",
            "split-certified": "certified",
            "pscp": "certified",
            "differential": "certified",
            "split-cp": "certified",
            "naive": "none",
        }[method],
    )
    assert promise.certificate == expected
    assert promise.level == (0.9 if expected == "certified" else None)
    assert (promise.black_box_floor is not None) == (method == "scp-f")
    assert promise.buffer_is == ("heuristic buffer" if method == "scp-f" else None)
    assert pipeline.private == (method not in ("differential", "split-cp", "naive"))
    private = MIXED if method in ("dpcp", "pscp") else "add-remove"
    assert pipeline.adjacency == (private if pipeline.private else "not private")


@pytest.mark.parametrize(
    "method",
    [method for method in PIPELINES if method in (*FULL, *HALVES) and method != "differential"],
)
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_budgets_add_up_to_the_total(method: str, accountant: str) -> None:
    """Training and quantile together stay within the budget, and those composed numerically come
    within 1% of it."""
    budget = Budget(1.0, DELTA, accountant)
    profile = PIPELINES[method](PipelineTerms(5_000, budget), Memoriser(64)).profile
    assert profile is not None
    assert budget.allows(profile)
    if method not in ("dpcp", "pscp"):
        assert profile.epsilon(DELTA, accountant=accountant) > 0.99


def test_the_share_moves_budget_between_training_and_quantile() -> None:
    """A larger share trains with less noise, leaves more of it to the counts and asks for a higher
    rank."""
    small, large = (
        scp_f(PipelineTerms(5_000, BUDGET, share=share), Memoriser(64)) for share in (0.2, 0.8)
    )
    assert isinstance(small.training, Gaussian)
    assert isinstance(large.training, Gaussian)
    assert isinstance(small.quantile, GaussianSearch)
    assert isinstance(large.quantile, GaussianSearch)
    assert small.training.mu < large.training.mu
    assert small.quantile.variance < large.quantile.variance
    assert (
        certified(PipelineTerms(5_000, BUDGET, share=0.2), Memoriser(64)).rank
        < certified(PipelineTerms(5_000, BUDGET, share=0.8), Memoriser(64)).rank
    )


def test_the_noise_of_a_location_is_laplace() -> None:
    """Deviations of the private location from the mean follow Laplace(bound / (n epsilon))."""
    learner, entropy = Location(np.zeros(100), bound=20.0, scale=16.0), SeededEntropy("laplace")
    drawn = [
        learner.fit(np.arange(100), Pure(0.5), entropy).location / (20.0 / (100 * 0.5))
        for _ in range(4_000)
    ]
    edges = np.array([-np.inf, -2, -1, -0.3, 0, 0.3, 1, 2, np.inf])
    at = np.where(
        edges < 0, np.exp(np.minimum(edges, 0)) / 2, 1 - np.exp(-np.maximum(edges, 0)) / 2
    )
    assert_follows(np.histogram(drawn, edges)[0], np.diff(at))


def test_made_up_records_are_as_described() -> None:
    """Labels are even up to flips, features have about unit spread after public scaling, and noise
    is cut where it should."""
    clusters = Clusters.drawn(np.random.default_rng(20))
    features, labels = clusters.draw(20_000, np.random.default_rng(1))
    assert_follows(np.bincount(labels), np.full(5, 0.2))
    assert np.abs(clusters.scaling(features).std(axis=0) - 1).max() < 0.25
    noise = located(20_000, np.random.default_rng(1)) - 5.0
    assert np.abs(noise).max() <= 15
    assert noise.std() == pytest.approx(5 * 0.9866, rel=0.03)


def a_network(**changes: Any) -> NetworkLearner:
    given: dict[str, Any] = {
        "features": np.zeros((4, 2)),
        "task": Labels(np.array([0, 1, 0, 1])),
        "recipe": Recipe(),
    }
    return NetworkLearner(**given | changes)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: PipelineTerms(100, BUDGET, beta=0.1), "beta must be below alpha"),
        (lambda: PipelineTerms(100, BUDGET, bins=1), "bins is 1"),
        (lambda: PipelineTerms(1, BUDGET), "at least 2 records"),
        (lambda: PipelineTerms(100, BUDGET, share=1.0), "share is 1.0"),
        (lambda: PipelineTerms(100, BUDGET, buffer=-1), "buffer is -1"),
        (lambda: certified(PipelineTerms(15, BUDGET), Memoriser(15)), "infeasible: rank"),
        (
            lambda: certified(PipelineTerms(100, Budget(40.0, DELTA)), Memoriser(100)),
            "infeasible: rank 102 of 100",
        ),
        (lambda: PIPELINES["naive"](PipelineTerms(5, BUDGET), Memoriser(5)), "infeasible"),
        (lambda: PIPELINES["dpcp"](PipelineTerms(50, BUDGET), Memoriser(50)), "dpcp at level"),
        (lambda: scp_f(PipelineTerms(60, BUDGET), Memoriser(60)), "infeasible: rank 65 of 60"),
        (lambda: dpcp_level(alpha=0.1, epsilon=1.0, delta=0.1), "below alpha"),
        (lambda: dpcp_rank(n=10, level=-0.5), "infeasible"),
        (lambda: Stability(1.0, math.inf, 1.0, 0.1), "density is inf"),
        (lambda: Stability(1.0, 1.0, 1.0, 0.0), "probability"),
        (lambda: Recipe(batch=0), "batch"),
        (lambda: a_network(features=np.full((4, 2), np.nan)), "not finite"),
        (lambda: a_network(features=np.zeros((5, 2))), "features have shape"),
        (lambda: Numbers(np.array([np.nan]), 1.0), "finite numbers"),
        (lambda: Numbers(np.array([1.0]), 0.0), "bound of score absolute-residual is 0.0"),
        (lambda: a_network().fit(np.arange(4), Pure(1.0), SeededEntropy(1)), "DP-SGD"),
        (
            lambda: Location(np.zeros(4), 1.0, 1.0).fit(
                np.arange(4), Gaussian(1.0), SeededEntropy(1)
            ),
            "Laplace",
        ),
        (lambda: Clusters.drawn(np.random.default_rng(0), features=2), "clusters at the corners"),
    ],
)
def test_impossible_requests_are_refused(make: Callable[[], Any], says: str) -> None:
    """What cannot be had is refused with the reason, before anything is trained."""
    with pytest.raises(BadInput, match=says):
        make()
