from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from confide.client.training.engines.choice import ENGINES
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.terms import TrainingTerms
from confide.simulation.attackers.canaries import (
    DELTA,
    canaries,
    claimed_terms,
    closed_form,
    noisy_step,
)
from confide.simulation.attackers.estimator import (
    Array,
    Release,
    by_definition,
    by_gaussian,
    gaussian_epsilon,
    watch,
)
from tests.support.networks.stacks import learn
from tests.support.training.canaries import torch_engine

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")

# An engine that keeps its claim fails an audit with at most this probability.
FALSE_ALARM = 1e-4
RUNS = {1.0: 7_000, 4.0: 1_500}
# Clipped integer sums of a batch, by engine.
SUMS: dict[str, Callable[[TrainingTerms], Release]] = {
    "exact arithmetic": closed_form,
    **{name: torch_engine(name) for name in ENGINES},
}


def bound(release: Release, runs: int) -> float:
    statistics = watch(release, canaries(), runs=runs, seed=1)
    return by_gaussian(statistics, delta=DELTA, false_alarm=FALSE_ALARM)


@pytest.mark.parametrize("engine", SUMS)
@pytest.mark.parametrize("epsilon", RUNS)
def test_an_audit_finds_no_more_than_a_step_claims(epsilon: float, engine: str) -> None:
    """A lower bound on epsilon from canaries is above 0 and below the claim; with half of the noise
    it is above the claim."""
    terms = claimed_terms(epsilon)
    sums = SUMS[engine](terms)
    step = noisy_step(terms, sums, SeededEntropy("audit", engine))
    weak = noisy_step(terms, sums, SeededEntropy("weak", engine), noise=0.5)
    assert 0.1 * epsilon < bound(step, RUNS[epsilon]) <= epsilon
    assert bound(weak, RUNS[epsilon]) > epsilon


def test_an_audit_finds_no_more_than_a_round_claims() -> None:
    """The same for the weights that leave after a round of three steps: sums, noise and updates in
    float32 together keep the claim of all steps, and with half of the noise they do not."""
    terms = claimed_terms(4.0, steps=3)
    weak = replace(terms, epsilon=40.0, noise_multiplier=terms.noise_multiplier / 2)

    def weights(given: TrainingTerms, entropy: SeededEntropy) -> Release:
        start = np.zeros(given.size, dtype=np.float32)
        # A step goes against the gradient.
        return lambda x, y: -learn(given, start, x, y, entropy=entropy).astype(np.float64)

    assert 2.0 < bound(weights(terms, SeededEntropy("round")), RUNS[4.0]) <= 4.0
    assert bound(weights(weak, SeededEntropy("weak round")), RUNS[4.0]) > 4.0


def test_an_audit_finds_records_that_are_not_clipped() -> None:
    """A sum of unclipped gradients breaks the claim that its noise would keep."""
    terms = claimed_terms(4.0)

    def unclipped(features: Array, labels: Array) -> Array:
        signals = np.where(labels == 0, -0.5, 0.5)[:, None] * np.array([1.0, -1.0])
        inputs = np.hstack([features, np.ones((len(features), 1))])
        sums = signals.T @ inputs * CLIP_UNITS
        return np.rint(np.concatenate([sums[:, :-1].ravel(), sums[:, -1]])).astype(np.int64)

    assert np.linalg.norm(unclipped(*(part[:1] for part in canaries().first))) > 1.5 * CLIP_UNITS
    assert bound(noisy_step(terms, unclipped, SeededEntropy("unclipped")), RUNS[4.0]) > 4.0


@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_bounds_are_wrong_no_more_often_than_they_say(mu: float) -> None:
    """On normal statistics of known separation, where the Gaussian bound is as tight as it can be,
    about 1 in 20 audits at a false alarm of 0.05 exceeds the true epsilon, and none by definition
    as often."""
    truth, audits = gaussian_epsilon(mu, DELTA), 400
    drawn = np.random.default_rng(2).normal(mu / 2, 1, (audits, 2_000))
    gaussian = sum(by_gaussian(row, delta=DELTA, false_alarm=0.05) > truth for row in drawn)
    exact = sum(
        by_definition(row, threshold=1.5, delta=DELTA, false_alarm=0.05) > truth for row in drawn
    )
    # P(Binomial(400, 0.05) > 38) < 1e-4.
    assert 2 <= gaussian <= 38
    assert exact <= gaussian


def test_the_bound_by_definition_is_tight_for_randomised_response() -> None:
    """A coin of probability e/(1 + e), whose epsilon is 1: the bound approaches it from below, and
    passes 1 if the coin's epsilon is 1.2."""
    rng = np.random.default_rng(3)

    def found(epsilon: float) -> float:
        right = rng.random(100_000) < 1 / (1 + np.exp(-epsilon))
        statistics = np.where(right, 1.0, -1.0)
        return by_definition(statistics, threshold=0.5, delta=0.0, false_alarm=FALSE_ALARM)

    assert 0.95 < found(1.0) <= 1.0
    assert found(1.2) > 1.0


def test_gaussian_epsilon_inverts_its_profile() -> None:
    """Telling N(0, 1) from N(1, 1) is (1, 0.1269)-DP and (0, 0.3829)-DP."""
    assert gaussian_epsilon(1.0, 0.12693674) == pytest.approx(1.0, abs=1e-6)
    assert gaussian_epsilon(1.0, 0.38292492) == pytest.approx(0.0, abs=1e-6)
