"""Coverage of campaigns on the records of a training, where its bound is tight; plans that cannot
be kept."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.aggregator.campaigns.planning.plans import make_plan
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.full_data.procedure import owner_noised, trusted
from confide.aggregator.procedures.full_data.rules import Certified, Nominal, Rule, rule_of
from confide.aggregator.quantiles.base import Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram
from confide.protocol.certificate import CentralCertificate
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import Entropy, SeededEntropy
from confide.protocol.methods.counts.full_data import VARIANTS, FullDataTerms
from confide.protocol.methods.counts.queries import (
    CountQuery,
    CountTally,
    HistogramQuery,
    HistogramTally,
)
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan
from confide.protocol.privacy.losses import Gaussian
from confide.protocol.privacy.zcdp import search_variance
from confide.protocol.simulated.settings import ALWAYS
from confide.simulation.driver import drive
from confide.simulation.evaluate.full_data.learners import Memoriser
from tests.support.training.trained_chain import TRAINS

N, OWNERS, ALPHA, MU = 20_000, 5, 0.1, 0.5
# A mean at its promised value is five standard errors below it with probability 3e-7, under the
# normal approximation.
ERRORS, TRIALS = 5.0, 30


def terms(variant: str, **changes: Any) -> FullDataTerms:
    """One step in which every record takes part, with noise 1/MU: MU-GDP."""
    kind, pure = VARIANTS[variant], variant in ("certified", "dpcp")
    variance = search_variance(bins=1024, epsilon=1.0, delta=1e-6)
    given: dict[str, Any] = {
        "variant": variant,
        "mechanism": kind.mechanism or "rank-exponential",
        "epsilon": 1.0,
        "privacy_delta": 0.0 if pure else 1e-6,
        "bins": 1024,
        "beta": 0.001,
        "noise_variance": variance if kind.noised_by_owners else 0,
        "training_noise": 1 / MU,
        "training_rate": 1.0,
        "training_steps": 1,
        "training_delta": 1e-6,
    }
    return FullDataTerms(**(given | changes))


@dataclass(frozen=True)
class Owners:
    """Owners whose records are remembered as well as the training's privacy allows."""

    scores: NDArray[Any]
    entropy: Entropy

    def __call__(self, query: Any) -> Any:
        return self._exact(query) if isinstance(query, HistogramQuery) else self._noised(query)

    def _exact(self, query: HistogramQuery) -> HistogramTally:
        return HistogramTally(query.count(self.scores), OWNERS)

    def _noised(self, query: CountQuery) -> CountTally:
        found = {}
        for i, part in enumerate(np.array_split(self.scores, OWNERS)):
            answer = query.answer(_Part(part, self.entropy))["counts"]
            found[bytes([i])] = (int(answer[0]), int(answer[1]))
        return CountTally(found)


@dataclass(frozen=True)
class _Part:
    """The records of one owner, of which only scores are asked."""

    own: NDArray[Any]
    entropy: Entropy
    labels: Any = None
    positions: Any = None
    public: Any = None

    def __len__(self) -> int:
        return len(self.own)

    def scores(self) -> NDArray[Any]:
        return self.own

    def probabilities(self) -> NDArray[Any]:
        raise NotImplementedError

    def features(self) -> NDArray[Any]:
        raise NotImplementedError

    def train(self, weights: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def noised_errors(self, weights: NDArray[Any]) -> int:
        raise NotImplementedError


def coverages(rule: Rule, *, mu: float = MU, trials: int = TRIALS) -> NDArray[Any]:
    """Thresholds of campaigns; unseen records have uniform scores, so each is a coverage."""
    found = []
    for trial in range(trials):
        entropy = SeededEntropy("campaign", trial)
        fitted = Memoriser(N).fit(np.arange(N), Gaussian(mu), entropy)
        owners = Owners(fitted.scores(np.arange(N)), entropy)

        def draw(mechanism: Mechanism, histogram: Histogram, rank: int) -> Release:
            return mechanism.release(histogram, rank, entropy)  # noqa: B023

        exact = rule.terms.shows_exact_counts
        procedure: Any = trusted(rule, draw=draw) if exact else owner_noised(rule)
        certificate: CentralCertificate = drive(procedure, owners)
        found.append(certificate.threshold)
    return np.array(found)


def low(found: NDArray[Any]) -> float:
    return ERRORS * float(found.std()) / math.sqrt(len(found) - 1)


@pytest.mark.parametrize("variant", ["certified", "certified-owner-noised"])
def test_certified_coverage_holds_where_the_bound_is_tight(variant: str) -> None:
    """At least 0.9; with exact counts at most a hundredth above it."""
    found = coverages(rule_of(terms(variant), alpha=ALPHA))
    assert found.mean() >= 1 - ALPHA - low(found)
    assert found.mean() <= (0.91 if variant == "certified" else 0.95)


def test_wrong_rules_undercover_there() -> None:
    """Planted: the nominal rank, and a training that remembers more than its plan says."""
    nominal = coverages(_Planted(terms("certified"), ALPHA))
    assert nominal.mean() < 1 - ALPHA - low(nominal)
    certified = rule_of(terms("certified"), alpha=ALPHA)
    understated = coverages(certified, mu=1.4 * MU)
    assert understated.mean() < 1 - ALPHA - low(understated)


class _Planted(Certified):
    """The certified rule without its transfer."""

    def rank(self, n: int) -> int:
        return Nominal(self.terms, self.alpha).rank(n)


def test_dp_scp_falls_below_its_target_and_not_below_its_floor() -> None:
    """Its buffer of ten ranks is no match for what a training may remember."""
    rule = rule_of(terms("scp-f"), alpha=ALPHA)
    found, floor = coverages(rule), rule.promise(N).black_box_floor
    assert floor is not None
    assert floor - low(found) <= found.mean() < 1 - ALPHA - low(found)


SETTINGS: dict[str, Any] = {
    "score": "hps",
    "labels": 3,
    "alpha": 0.1,
    "records": 1_200,
    "minimum-reports": 50,
    "minimum-owners": 1,
    "model": bytes(32).hex(),
    "mechanism": "rank-exponential",
    "epsilon": 1.0,
    "bins": 256,
    "beta": 0.002,
    "grid": "mixed",
    "privacy-delta": 1e-6,
}


def made(variant: str, training: Plan | None = TRAINS, **changes: Any) -> Plan:
    name = f"full-data:{variant}"
    return make_plan(name, SETTINGS | changes, title="x", valid=ALWAYS, training=training)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_plan_takes_its_numbers_from_the_training(variant: str) -> None:
    """Its records too; and it survives the wire."""
    plan = made(variant)
    own: Any = plan.terms
    trained: Any = TRAINS.terms
    assert plan.share == TRAINS.share
    assert plan.expected_records == round(0.6 * 1_200)
    assert own.training_noise == trained.noise_multiplier
    assert own.training_steps == trained.rounds * trained.local_steps
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert plan.terms.shows_exact_counts == (not variant.endswith("owner-noised"))
    assert (plan.privacy_delta == 0) == (variant in ("certified", "dpcp"))


def test_plans_that_cannot_be_kept_are_refused_before_anybody_is_asked() -> None:
    """Without a training, with too few records for the rank, or with a mechanism that certifies
    nothing."""
    with pytest.raises(BadInput, match="no training is given"):
        made("certified", training=None)
    with pytest.raises(BadInput, match="infeasible: rank"):
        made("certified", records=40)
    with pytest.raises(BadInput, match="accepted"):
        made("certified", mechanism="noisy-midpoint")
    with pytest.raises(BadInput, match="variant of full-data"):
        made("dpcp-owner-noised")
    weak = replace(TrainingTerms.of(TRAINS.terms), noise_multiplier=1.5, epsilon=40.0)
    strong = replace(TRAINS, terms=weak)
    with pytest.raises(BadInput, match="less epsilon"):
        made("certified", training=strong, records=100)


def test_terms_of_a_training_that_cannot_be_are_refused_on_the_wire() -> None:
    plan = made("certified")
    for changes in ({"training_noise": 0.0}, {"training_rate": 1.5}, {"training_steps": 0}):
        with pytest.raises(BadInput, match="of the training"):
            replace(plan.terms, **changes)
    data = plan.to_bytes()
    with pytest.raises(Refused):
        Plan.from_bytes(data.replace(b"certified", b"certifled"))


def test_a_release_is_drawn_once() -> None:
    """The procedure asks its draw once, with the rank of the rule and public n."""
    rule, calls = rule_of(terms("certified"), alpha=ALPHA), []

    def draw(mechanism: Mechanism, histogram: Histogram, rank: int) -> Release:
        calls.append(rank)
        return draw_afresh(mechanism, histogram, rank)

    scores = np.random.default_rng(0).random(N)
    certificate = drive(trusted(rule, draw=draw), Owners(scores, SeededEntropy(1)))
    assert calls == [certificate.rank] == [rule.rank(N)]
