from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from confide.aggregator.campaigns.admission import Admission
from confide.protocol.certificate import MARGINAL
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.methods.labels.query import LabelQuery, LabelTally
from confide.protocol.plan import digest, write_query
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import true_scores
from tests.support.owners.owners import LABEL_PLAN, K, asking, changed, owner, signed
from tests.support.truth.coverage import CERTIFIED, LEVELED, METHODS, PATHS, Cell, Method
from tests.support.truth.known import FALSE_ALARM, assert_mean_at_most, assert_rate_at_most
from tests.support.truth.populations import HARD, POPULATIONS

POOLED = [method for method in METHODS if method.variant == "certified"]
RANDOMIZED = sorted(name for name in SCORES if SCORES[name].randomized)
K_RR, BITS = Method("labels", "certified", "k-rr"), Method("bits", "certified", "bit")


@pytest.mark.parametrize("score", list(SCORES))
def test_the_known_coverage_is_right(score: str) -> None:
    """The finite sum agrees with a sample of 100,000 records to five standard errors (false alarm
    6e-7 a threshold)."""
    rng, n = np.random.default_rng(0), 100_000
    for population in POPULATIONS.values():
        probs, labels = population.draw(n, rng)
        own = true_scores(SCORES[score], probs.astype(np.float32), labels, u=rng.random(n))
        for q in np.minimum(np.quantile(own, [0.05, 0.5, 0.89, 0.97]) + 1e-6, 1):
            known = population.coverage(score, float(q))
            assert abs(np.mean(own <= q) - known) <= 5 * 0.5 / np.sqrt(n)


@pytest.mark.parametrize("name", list(HARD))
def test_hard_populations_have_the_coverage_that_is_known(name: str) -> None:
    """Likewise; every label is covered alike."""
    rng, n, population = np.random.default_rng(1), 100_000, HARD[name]
    probs, labels = population.draw(n, rng)
    own = true_scores(SCORES["hps"], probs.astype(np.float32), labels)
    for q in (0.1, 0.365, 0.375, 0.59, 0.601, 0.69, 0.72, 0.96, 0.98, 1 - 1e-4):
        known = population.coverage("hps", q)
        assert abs(np.mean(own <= q) - known) <= 5 * 0.5 / np.sqrt(n)
        first = own[labels == 0]
        assert abs(np.mean(first <= q) - known) <= 5 * 0.5 / np.sqrt(len(first))


def hard_failures(method: Method, *, level: float | None = None, **planted: Any) -> int:
    """Of 24 campaigns, three in process and one over the wire for every hard population."""
    return sum(
        replace(Cell(method, "hps", name, path, n=method.records), **planted).failures(
            count, level=level
        )
        for name in HARD
        for path, count in zip(PATHS, (3, 1), strict=True)
    )


def test_every_certified_variant_holds_on_hard_populations() -> None:
    """Each variant, and all together, are consistent with delta (false alarm 1e-6 each)."""
    found = {str(method): hard_failures(method) for method in CERTIFIED}
    for failures in found.values():
        assert_rate_at_most(failures, 24, 0.1)
    assert_rate_at_most(sum(found.values()), 24 * len(found), 0.1)


@pytest.mark.parametrize("method", [K_RR, BITS], ids=str)
def test_too_low_a_target_is_caught_on_hard_populations(method: Method) -> None:
    """Certificates of 0.8 that are held to 0.9."""
    with pytest.raises(AssertionError, match="failures in 24 campaigns"):
        assert_rate_at_most(hard_failures(method, level=0.9, alpha=0.2), 24, 0.1)


@pytest.mark.parametrize(
    ("method", "path"),
    # Pairs take longest; test_class_pairs counts them in process.
    [(m, path) for m in METHODS for path in PATHS if (m.method, path) != ("pairs", "in process")],
    ids=str,
)
def test_every_method_covers_as_it_claims_with_every_score(method: Method, path: str) -> None:
    """Eight campaigns a score and population, and all of them together, are consistent with delta
    (false alarm 1e-6 each). Over the wire a confident model is asked for randomised scores alone,
    whose uniform numbers come with the reports.

    Caught are a cell that fails seven times in eight, and a method that fails three times in ten in
    process or every second time over the wire.
    """
    cells = [
        Cell(method, score, population, path, n=method.records)
        for score in SCORES
        for population in ("hair below", "confident")
        if population == "hair below" or path == "in process" or score in RANDOMIZED
    ]
    failures = [cell.failures(8) for cell in cells]
    for cell, count in zip(cells, failures, strict=True):
        assert_rate_at_most(count, 8, cell.delta)
    assert_rate_at_most(sum(failures), 8 * len(cells), 0.1)


@pytest.mark.parametrize("method", LEVELED, ids=str)
def test_averages_and_bands_cover_as_they_claim_over_the_wire(method: Method) -> None:
    """On two populations: the mean of what averages miss is at most alpha (false alarm 1e-5), and
    campaigns in which any level of a band covers too little are consistent with delta (1e-6). In
    process tests/aggregator/procedures/test_levels.py counts them."""
    for population in ("unsure", "hair below"):
        cell = Cell(method, "hps", population, "wire", n=2_000)
        made = [cell.certificate(i) for i in range(10)]
        assert {one.kind for one in made} == {method.guarantee}
        if method.guarantee == MARGINAL:
            assert_mean_at_most([cell.missed(one.threshold) for one in made], cell.alpha)
        else:
            assert_rate_at_most(sum(map(cell.fails, made)), len(made), cell.delta)


@pytest.mark.parametrize(
    ("population", "epsilon"), [("hair below", 1.0), ("hair below", 4.0), ("unsure", 4.0)]
)
@pytest.mark.parametrize("method", [*POOLED, Method("bits", "one-shot", "bit")], ids=str)
def test_certified_campaigns_fail_at_most_with_delta(
    method: Method, population: str, epsilon: float
) -> None:
    """Of 300 campaigns those with too little coverage are consistent with delta (false alarm
    1e-6)."""
    cell = Cell(method, "hps", population, "in process", n=1_000, epsilon=epsilon)
    assert_rate_at_most(cell.failures(300), 300, cell.delta)


@pytest.mark.parametrize(
    ("method", "planted"),
    [
        (K_RR, {"delta": 0.4}),
        (K_RR, {"alpha": 0.14}),
        (BITS, {"delta": 0.4}),
        (BITS, {"alpha": 0.12}),
    ],
)
def test_a_planted_wrong_level_is_caught(method: Method, planted: dict[str, Any]) -> None:
    """Testing at four times delta, or for two to four points less coverage, shows in the rate of
    failures."""
    cell = replace(Cell(method, "hps", "hair below", "in process", n=1_000), **planted)
    with pytest.raises(AssertionError, match="failures in 300 campaigns"):
        assert_rate_at_most(cell.failures(300, level=0.9), 300, 0.1)


@pytest.mark.parametrize("score", RANDOMIZED)
@pytest.mark.parametrize("channel", list(LABEL_CHANNELS))
def test_randomised_scores_cover_over_the_wire(channel: str, score: str) -> None:
    """Of 40 campaigns of a confident model, those below the target are consistent with delta (false
    alarm 1e-6)."""
    cell = Cell(Method("labels", "certified", channel), score, "confident", "wire", n=3_000)
    assert_rate_at_most(cell.failures(40), 40, cell.delta)


@pytest.mark.parametrize("score", RANDOMIZED)
def test_the_place_of_a_report_says_nothing_of_its_number(score: str, tmp_path: Path) -> None:
    """In the tally of answers that came in as bytes, places and scores are uncorrelated (false
    alarm 1e-9)."""
    plan, n = changed(LABEL_PLAN, score=score), 4_000
    query, name = LabelQuery(LABEL_CHANNELS["k-rr"](k=K, epsilon=4.0)), digest(plan.to_bytes())
    intake = Admission(plan)
    intake.open(query, 0)
    ask = asking(signed(plan), [owner(tmp_path / str(i), seed=i, n=n // 2) for i in range(2)])
    for answer in ask(write_query(query, plan=name, round_=0)):
        assert intake.admit(answer).accepted == n // 2
    tally = intake.tally()
    assert isinstance(tally, LabelTally)
    ranks = tally.scores.min(axis=1).argsort().argsort()
    assert abs(np.corrcoef(ranks, np.arange(n))[0, 1]) <= norm.isf(FALSE_ALARM / 2) / np.sqrt(n)
