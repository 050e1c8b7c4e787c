"""Whether central campaigns release a threshold on the safe side as often as they claim.

With a beta each release must reach its rank but for that probability. Without one, as by default,
coverage is promised on average over calibrations and draws.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.quantiles.histogram import certified_rank
from confide.aggregator.quantiles.registry import certified_names, needs_delta
from confide.client.records.records import Records
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.counts.central import SEARCH, CentralTerms
from confide.protocol.methods.counts.queries import CountQuery, CountTally
from confide.protocol.plan import Plan, digest
from confide.protocol.privacy.zcdp import search_variance
from confide.protocol.scores.registry import SCORES, find_label_score
from confide.protocol.scores.scoring import true_scores
from confide.simulation.driver import CountingOwner, drive
from tests.support.cards.central import OPEN_POLICY
from tests.support.owners.owners import MODEL, PLAN, asking, owner, signed
from tests.support.truth.coverage import MEMORY
from tests.support.truth.known import assert_rate_at_most
from tests.support.truth.populations import POPULATIONS

N, ALPHA, BETA, BINS, EPSILON, CAMPAIGNS = 600, 0.2, 0.1, 64, 1.0, 10
POLICY = replace(OPEN_POLICY, minimum_group=1, epsilon_per_record=40.0)
POPULATION = POPULATIONS["unsure"]


def terms(name: str, beta: float = BETA) -> CentralTerms:
    """Terms of a campaign in which this mechanism, or the owners, add the noise."""
    noised = name == "owner-noised"
    delta = 1e-6 if noised or needs_delta(name) else 0.0
    return CentralTerms(
        variant="owner-noised" if noised else "trusted",
        mechanism=SEARCH if noised else name,
        epsilon=EPSILON,
        bins=BINS,
        beta=beta,
        privacy_delta=delta,
        noise_variance=search_variance(bins=BINS, epsilon=EPSILON, delta=delta) if noised else 0,
    )


def planned(name: str, score: str, number: int) -> Plan:
    return replace(
        PLAN,
        campaign=f"{name} {score} {number}",
        terms=terms(name),
        score=SCORES[score].text,
        labels=POPULATION.labels,
        alpha=ALPHA,
        expected_records=N,
        minimum_reports=0,
    )


def drawn(score: str, n: int, rng: np.random.Generator) -> Any:
    probs, labels = POPULATION.draw(n, rng)
    single = probs.astype(np.float32)
    return true_scores(find_label_score(score), single, labels, u=rng.random(n))


def in_process(plan: Plan, rng: np.random.Generator) -> tuple[float, Any]:
    """The threshold of a campaign on arrays, and the scores of its records."""
    scores = drawn(plan.score, N, rng)

    def counted(query: Any) -> Any:
        if not isinstance(query, CountQuery):
            return CountingOwner(scores)(query)
        noise = discrete_gaussian(Fraction(query.variance), 2, os_entropy).tolist()
        halves = np.array_split(scores, 2)
        pairs = [
            (len(half), int(np.count_nonzero(half <= query.threshold)) + more)
            for half, more in zip(halves, noise, strict=True)
        ]
        return CountTally(dict(zip((b"one", b"two"), pairs, strict=True)))

    return drive(plan_procedure(plan, draw_afresh), counted).threshold, scores


def over_the_wire(plan: Plan, rng: np.random.Generator) -> tuple[float, Any]:
    """The same of two owners behind policy and ledger, whose answers come in as bytes."""
    probs, labels = POPULATION.draw(N, rng)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        owners, scores = [], []
        for i, part in enumerate(np.array_split(np.arange(N), 2)):
            names = tuple(f"{i}/{j}".encode() for j in range(len(part)))
            held = Records(names, probs[part].astype(np.float32), labels[part], MODEL)
            one = owner(Path(folder) / str(i), seed=i, policy=POLICY, entropy=os_entropy, held=held)
            owners.append(one)
        outcome = run_campaign(plan, asking(signed(plan), owners))
        for one in owners:
            everybody = np.arange(len(one._records))
            chosen = one._chosen(plan, digest(plan.to_bytes()), everybody, positions=everybody / N)
            scores.append(chosen.scores())
    return outcome.certificate.threshold, np.concatenate(scores)


PATHS: dict[str, Callable[[Plan, np.random.Generator], tuple[float, Any]]] = {
    "in process": in_process,
    "wire": over_the_wire,
}


def failures(name: str, path: str, *, short: int = 0) -> int:
    """How many campaigns of all scores end below the score whose rank they must reach."""
    rank = certified_rank(n=N, alpha=ALPHA, beta=BETA)
    found, rng = 0, np.random.default_rng(len(name))
    for score in SCORES:
        for number in range(CAMPAIGNS):
            threshold, scores = PATHS[path](planned(name, score, number), rng)
            needed = np.sort(scores)[rank - 1 + short]
            found += threshold < needed
    return found


@pytest.mark.parametrize("path", list(PATHS))
@pytest.mark.parametrize("name", [*certified_names(), "owner-noised"])
def test_a_release_misses_its_rank_no_more_often_than_beta(name: str, path: str) -> None:
    """Ten campaigns a score, together consistent with beta (false alarm 1e-6)."""
    assert_rate_at_most(failures(name, path), CAMPAIGNS * len(SCORES), BETA)


def test_a_rank_that_is_too_low_is_caught() -> None:
    """Held to a rank that it does not aim at, 55 records higher, a mechanism misses too often."""
    with pytest.raises(AssertionError):
        assert_rate_at_most(
            failures("rank-exponential", "in process", short=55), CAMPAIGNS * len(SCORES), BETA
        )


def misses(path: str, asked: CentralTerms, *, lowered: int = 0) -> list[float]:
    """The shares of fresh scores that campaigns of all scores with these terms miss.

    `lowered` moves thresholds down by so many records.
    """
    found, rng = [], np.random.default_rng(7)
    for score in SCORES:
        fresh = drawn(SCORES[score].text, 4_000, rng)
        for number in range(CAMPAIGNS):
            plan = replace(planned("rank-exponential", score, number), terms=asked)
            threshold, scores = PATHS[path](plan, rng)
            if lowered:
                ordered = np.sort(scores)
                threshold = ordered[max(0, int(np.searchsorted(ordered, threshold)) - lowered)]
            found.append(float(np.mean(fresh > threshold)))
    return found


AVERAGED = replace(terms("rank-exponential", beta=0.0), grid="mixed")


def assert_mean_at_most(found: list[float], alpha: float) -> None:
    """Five standard errors are allowed: a false alarm in about three million."""
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert np.mean(found) <= alpha + 5 * error, (np.mean(found), error)


@pytest.mark.parametrize("path", list(PATHS))
def test_campaigns_without_a_beta_cover_on_average(path: str) -> None:
    """Ten campaigns a score with the defaults; and they do not cover by being trivial."""
    found = misses(path, AVERAGED)
    assert_mean_at_most(found, ALPHA)
    assert np.mean(found) >= ALPHA / 2


def test_an_average_that_is_too_low_is_caught() -> None:
    with pytest.raises(AssertionError):
        assert_mean_at_most(misses("in process", AVERAGED, lowered=80), ALPHA)


DELTA = 0.2
PROMISES = {
    "default": replace(AVERAGED, delta=DELTA),
    "beta": replace(terms("above-threshold"), delta=DELTA, grid="mixed"),
    "owner-noised": replace(terms("owner-noised"), delta=DELTA, grid="mixed"),
}


def failed(found: list[float]) -> int:
    """How many miss more than alpha; fresh scores are 4,000, so five of their deviations more."""
    return sum(miss > ALPHA + 5 * np.sqrt(ALPHA * (1 - ALPHA) / 4_000) for miss in found)


@pytest.mark.parametrize("path", list(PATHS))
@pytest.mark.parametrize("name", PROMISES)
def test_a_pac_promise_fails_no_more_often_than_delta(name: str, path: str) -> None:
    """Ten campaigns a score, together consistent with delta (false alarm 1e-6)."""
    found = misses(path, PROMISES[name])
    assert_rate_at_most(failed(found), len(found), DELTA)


def test_a_pac_promise_that_fails_too_often_is_caught() -> None:
    found = misses("in process", PROMISES["default"], lowered=90)
    with pytest.raises(AssertionError):
        assert_rate_at_most(failed(found), len(found), DELTA)
