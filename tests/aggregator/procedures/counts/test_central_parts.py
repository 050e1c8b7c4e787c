"""Counts with a threshold for each class or group: coverage of each, on known truth."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from confide.aggregator.campaigns.driver import Outcome
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.certificate import CentralCertificate, CountedPart
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.plan import Plan
from confide.protocol.privacy.zcdp import search_steps, search_variance, zcdp_epsilon
from confide.simulation.driver import CountingOwner, NoisingOwners, drive
from tests.support.cards.campaign_cards import issued
from tests.support.cards.cards import broken
from tests.support.cards.central import BINS, NOISED, TRUSTED
from tests.support.owners.owners import BY_WARD, WARDS, K, changed

ALPHA = 0.1
CLASSES = changed(TRUSTED, beta=0.0, epsilon=4.0, bins=1024, by="class", parts=K)
GROUPS = changed(TRUSTED, beta=0.0, epsilon=2.0, bins=1024, by="group", parts=3, **BY_WARD)


def drawn(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Scores whose coverage at q is q in part 0, q^2 in part 1 and so on; the last is rare."""
    parts = rng.choice(K, n, p=(0.4, 0.3, 0.2, 0.09, 0.01))
    return rng.random(n) ** (1 / (parts + 1)), parts


def run(plan: Plan, scores: Any, parts: Any, seed: int) -> CentralCertificate:
    entropy = SeededEntropy("parts", seed)
    owner = CountingOwner(scores, parts, np.array(WARDS)[parts % 3])
    procedure = plan_procedure(plan, lambda made, counts, rank: made.release(counts, rank, entropy))
    certificate: CentralCertificate = drive(procedure, owner)
    return certificate


def covered(one: CountedPart, power: int) -> float:
    return float(one.threshold**power)


def test_every_class_is_covered_on_average_over_calibrations() -> None:
    """Also the rare one, about ten records of which are mostly answered by the top of the grid.

    A mean of 200 coverages is below 0.9 by four of its standard errors with probability 3e-5; a
    pooled threshold covers the last class in 1 of 100 records less than that.
    """
    found = []
    for i in range(200):
        scores, parts = drawn(1_000, np.random.default_rng([i, 3]))
        made = run(CLASSES, scores, parts, i)
        found.append([covered(one, 1 + int(one.name)) for one in made.strata])
    coverage = np.array(found)
    low = coverage.mean(axis=0) + 4 * coverage.std(axis=0) / np.sqrt(len(coverage))
    assert (low >= 1 - ALPHA).all(), coverage.mean(axis=0)
    assert norm.sf(4) < 4e-5
    # It is not true for being trivial, and one threshold for all would not cover the last class.
    assert np.median(coverage[:, 0]) < 0.97
    pooled = [
        run(changed(TRUSTED, beta=0.0, epsilon=4.0), *drawn(1_000, np.random.default_rng(i)), i)
        for i in range(5)
    ]
    assert max(made.threshold**K for made in pooled) < 0.88


def test_every_group_is_covered_in_its_own_calibration() -> None:
    """PAC at delta 0.1: of 60 campaigns at most 17 fail in a group, but for probability 1e-4."""
    plan, failed = changed(GROUPS, delta=0.1), np.zeros(3)
    for i in range(60):
        rng = np.random.default_rng([i, 4])
        parts = rng.choice(3, 2_000, p=(0.6, 0.3, 0.1))
        scores = rng.random(2_000) ** (1 / (parts + 1))
        made = run(plan, scores, parts, i)
        assert [(one.name, one.n) for one in made.strata] == [
            (name, int((parts == j).sum())) for j, name in enumerate(WARDS)
        ]
        failed += [covered(one, j + 1) < 1 - ALPHA for j, one in enumerate(made.strata)]
    assert failed.max() <= 17
    assert failed.sum() > 0, "a guarantee that never fails is not tight"


def test_nothing_but_thresholds_tells_how_many_records_a_class_has() -> None:
    """Certificates and cards of two campaigns that differ in their classes and not in what is drawn
    are the same: rank, inflation, n and reasons do not know the classes."""
    rng = np.random.default_rng(5)
    scores, parts = drawn(3_000, rng)
    made = run(CLASSES, scores, parts, 1)
    assert (made.n, made.epsilon == pytest.approx(4.0)) == (3_000, True)
    for one in made.strata:
        assert (one.n, one.rank, one.inflation) == (None, None, None)
    other = run(CLASSES, scores, (parts + 1) % K, 1)
    drawn_values = {"strata", "threshold", "bin"}
    assert all(
        getattr(made, name.name) == getattr(other, name.name)
        for name in fields(made)
        if name.name not in drawn_values
    )


def test_a_rare_class_and_an_empty_group_keep_the_top_with_a_reason() -> None:
    """A class by the law of the release, a group because its public number of records has no rank;
    labels that the plan does not have count as records, in no class."""
    rng = np.random.default_rng(6)
    scores, parts = rng.random(3_000), rng.choice(3, 3_000)
    labels = np.where(np.arange(3_000) < 100, 77, parts)
    made = run(CLASSES, scores, labels, 1)
    assert made.n == 3_000
    reasons = [one.reason for one in made.strata if one.threshold >= 1]
    assert reasons.count(
        "the release is the top of the grid: too few records for this epsilon"
    ) == len(reasons)
    few = np.minimum(parts, 1)
    empty = run(GROUPS, scores, few, 1)
    assert [one.reason for one in empty.strata][-1] == "no records were counted"
    assert (empty.strata[-1].threshold, empty.strata[-1].n) == (1.0, 0)
    assert empty.reason is None
    assert min(one.threshold for one in empty.strata) < 1


@pytest.mark.parametrize(
    "plan", [CLASSES, GROUPS, changed(GROUPS, delta=0.1)], ids=["classes", "groups", "PAC"]
)
def test_cards_verify(plan: Plan) -> None:
    """Also where a part has the top of the grid."""
    rng = np.random.default_rng(7)
    scores, parts = drawn(3_000, rng)
    parts = parts if plan is CLASSES else np.minimum(parts, 1)
    certificate = replace(run(plan, scores, parts, 2), randomness="operating system")
    assert broken(issued(plan, Outcome(certificate, {"OK": 1}, 1, 3_000))) == []


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"by": "ward"}, "by is 'ward'; accepted"),
        ({"by": "class", "parts": K, "delta": 0.1}, "the number of records of a class is private"),
        ({"by": "group", "parts": 0}, "accepted are both with by 'group'"),
        ({"by": "class", "parts": 2}, "the plan has 5 labels"),
        ({"by": "group", "parts": 2, **BY_WARD}, "parts is 2; accepted is 3"),
        ({"by": "class", "parts": K, "bins": 1 << 20}, "counts in all"),
        ({"by": "group", "parts": 2, "group_column": "ward", "groups": ("a", "a")}, "different"),
        ({"by": "group", "parts": 2, "group_column": "ward ", "groups": ("a", "b")}, "a space"),
    ],
)
def test_parts_that_cannot_be_promised_are_refused(changes: dict[str, Any], match: str) -> None:
    """With what was found and what is accepted, before anybody is asked."""
    with pytest.raises(BadInput, match=match):
        changed(TRUSTED, **{"beta": 0.0, **changes})


def test_a_mechanism_that_needs_public_numbers_is_refused_for_classes() -> None:
    """When the campaign is planned, not when its owners have answered."""
    plan = changed(TRUSTED, mechanism="pps", by="class", parts=K)
    with pytest.raises(BadInput, match="pps with by class"):
        next(plan_procedure(plan, draw_afresh))


OWNERS = 4
NOISED_PARTS = {
    by: changed(
        NOISED,
        epsilon=4.0,
        by=by,
        parts=parts,
        noise_variance=search_variance(bins=BINS, epsilon=4.0, delta=1e-6, moved=moved),
        **given,
    )
    for by, parts, moved, given in (("class", K, 2, {}), ("group", 3, 1, BY_WARD))
}


def noised(by: str, seed: int, *, stays: int = OWNERS) -> CentralCertificate:
    """A campaign of owners that noise their counts; only the first `stays` answer later rounds."""
    plan, rng = NOISED_PARTS[by], np.random.default_rng([seed, 6])
    number = rng.choice(3, 12_000, p=(0.5, 0.3, 0.2))
    scores = rng.random(12_000) ** (1 / (number + 1))
    users = NoisingOwners(scores, OWNERS, SeededEntropy("noised", seed), number)
    rounds = [0]

    def answer(query: Any) -> Any:
        found, rounds[0] = users(query), rounds[0] + 1
        kept = sorted(found.answers)[: OWNERS if rounds[0] == 1 else stays]
        return replace(found, answers={name: found.answers[name] for name in kept})

    certificate: CentralCertificate = drive(plan_procedure(plan, draw_afresh), answer)
    return certificate


@pytest.mark.parametrize("by", NOISED_PARTS)
def test_parts_whose_counts_are_noised_are_covered(by: str) -> None:
    """On average over 40 campaigns, by four standard errors, and not by the top of the grid. One
    that nobody has keeps it, with the reason. Owners that leave raise thresholds only."""
    found = []
    for i in range(40):
        made = noised(by, i)
        found.append([covered(one, j + 1) for j, one in enumerate(made.strata[:3])])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    assert (mean + 4 * error >= 1 - ALPHA).all(), mean
    assert (mean < 0.99).all(), mean
    assert [one.threshold for one in made.strata[3:]] == [1.0] * (len(made.strata) - 3)
    assert all("no count below the top" in str(one.reason) for one in made.strata[3:])
    fewer = noised(by, 0, stays=2)
    pairs = zip(noised(by, 0).strata, fewer.strata, strict=True)
    assert all(less.threshold >= one.threshold for one, less in pairs)
    assert fewer.inflation is None
    assert all(one.inflation is None for one in fewer.strata)


def test_a_record_that_moves_two_noised_counts_pays_for_both() -> None:
    """The exact divergence of order 2 between the noised counts of neighbours is that for which the
    plan accounts; half of it, the cost of one count, is not enough."""
    terms = CentralTerms.of(NOISED_PARTS["class"].terms)
    reach = int(20 * math.sqrt(terms.noise_variance))
    x = np.arange(-reach, reach + 1)
    law = np.exp(-(x**2) / (2 * terms.noise_variance))
    law /= law.sum()
    # One record less in the count of one class, and one more in that of another, in every round.
    down, up = (float((np.roll(law, shift) ** 2 / law)[1:-1].sum()) for shift in (-1, 1))
    divergence = terms.rounds * math.log(down * up)
    rho = terms.moved * terms.rounds / (2 * terms.noise_variance)
    assert divergence == pytest.approx(2 * rho, rel=1e-6)
    assert divergence > 1.9 * rho
    assert zcdp_epsilon(rho, 1e-6) == pytest.approx(terms.noise_epsilon)
    assert zcdp_epsilon(rho, 1e-6) <= 4.0 < 2 * zcdp_epsilon(rho / 2, 1e-6)
    assert terms.rounds == search_steps(BINS) + 1
