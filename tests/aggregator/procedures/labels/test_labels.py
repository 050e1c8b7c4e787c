import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from confide.aggregator.procedures.bits.one_shot import one_shot
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.labels import procedure as labels
from confide.aggregator.procedures.labels.sweep import noise_aware_threshold
from confide.aggregator.procedures.ladder import check_ladder, even_in_size, public_ladder
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.certificate import LIARS_IN_ORDER, LocalCertificate
from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.channels.subset_selection import SubsetSelection
from confide.protocol.channels.unary_encoding import UnaryEncoding
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.query import LabelQuery, LabelTally
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import all_scores
from confide.simulation.driver import LabelUsers, drive
from tests.support.owners.owners import LABEL_PLAN
from tests.support.truth.known import assert_rate_at_most, label_coverage, label_population

ALPHA = DELTA = 0.1
K = 5


def campaign(channel: LabelChannel, seed: int, n: int, **more: Any) -> LocalCertificate:
    probs, truth = label_population(n, channel.k, np.random.default_rng(seed), ties=False)
    users = LabelUsers(all_scores(SCORES["hps"], probs), truth, SeededEntropy("labels", seed))
    return drive(labels.certified(channel=channel, alpha=ALPHA, delta=DELTA, **more), users)


def test_the_known_coverage_is_right() -> None:
    """The closed form agrees with a large sample to four standard errors."""
    probs, truth = label_population(200_000, K, np.random.default_rng(0), ties=False)
    own = 1 - probs[np.arange(len(truth)), truth]
    for q in (0.2, 0.55, 0.7, 0.85, 0.95):
        assert abs(np.mean(own <= q) - label_coverage(q, K)) <= 4 * 0.5 / math.sqrt(200_000)


def test_a_planted_wrong_channel_is_caught() -> None:
    """An aggregator that takes the reports for noisier than they are certifies thresholds that do
    not cover."""
    failures = 0
    for i in range(400):
        probs, truth = label_population(1_000, K, np.random.default_rng(i), ties=False)
        scores = all_scores(SCORES["hps"], probs)
        reports = KaryRR(k=K, epsilon=1.0).randomize(truth, SeededEntropy(i))
        swapped = KaryRR(k=K, epsilon=0.5)
        procedure = labels.certified(
            channel=swapped, alpha=ALPHA, delta=DELTA, ladder=public_ladder(100)
        )
        next(procedure)
        with pytest.raises(StopIteration) as finished:
            procedure.send(LabelTally(scores, reports))
        certificate = finished.value.value
        failures += label_coverage(certificate.threshold, K) < 1 - ALPHA
    with pytest.raises(AssertionError):
        assert_rate_at_most(failures, 400, DELTA)


def brute_force(
    scores: NDArray[Any], supported: NDArray[Any], goal: float, spill: float
) -> float | None:
    points = np.unique(scores)
    value = np.array([(supported <= q).sum() - spill * (scores <= q).sum() for q in points])
    short = np.flatnonzero(value < goal)
    if short.size == 0:
        return float(points[0])
    return None if short[-1] == points.size - 1 else float(points[short[-1] + 1])


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    k=st.integers(2, 6),
    atoms=st.sampled_from([0, 3, 50]),
    target=st.floats(0.05, 1.0),
    narrow=st.booleans(),
)
def test_the_sweep_is_exact(
    seed: int, n: int, k: int, atoms: int, target: float, narrow: bool
) -> None:
    """The bucketed sweep finds what trying every breakpoint finds: ties, dips, scores all in one
    bucket, none that serves."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, atoms + 1, (n, k)) / atoms if atoms else rng.random((n, k))
    if narrow:
        scores = 0.5 + scores * 1e-6
    channel = KaryRR(k=k, epsilon=1.0)
    supported = channel.supported(rng.integers(0, k, n), scores)
    goal, spill = n * float(channel.hit - channel.spill) * target, float(channel.spill)
    assert noise_aware_threshold(scores, supported, goal=goal, spill=spill) == brute_force(
        scores, supported, goal, spill
    )


def test_the_sweep_does_not_fall_for_a_dip() -> None:
    """Where the estimate crosses the target, dips and crosses again, the later crossing is taken;
    bisection takes the first."""
    # 90 supported labels at 0.2, then unsupported ones at 0.6 that pull the estimate down, the last
    # supported at 0.9.
    scores = np.concatenate([np.tile([0.2, 0.6], (90, 1)), np.tile([0.9, 0.95], (10, 1))])
    reports = np.zeros(100, dtype=np.int64)
    channel = KaryRR(k=2, epsilon=2.0)
    tally = LabelTally(scores, reports)
    target = 0.95
    found = labels._sweep(tally, channel, target=target, slack=0.0)
    assert found == 0.9
    assert labels._bisect(tally, channel, target=target, slack=0.3) < 0.6


@pytest.mark.parametrize("star", [False, True])
def test_published_covers_as_it_says_by_bisection(star: bool) -> None:
    """L covers 1 - alpha - Delta and L* covers 1 - alpha (100 campaigns, false alarm 1e-6)."""
    channel, failures = KaryRR(k=K, epsilon=4.0), 0
    for i in range(100):
        probs, truth = label_population(3_000, K, np.random.default_rng(i), ties=False)
        users = LabelUsers(all_scores(SCORES["hps"], probs), truth, SeededEntropy(i))
        procedure = labels.published(
            channel=channel, alpha=ALPHA, delta=DELTA, star=star, method="bisection"
        )
        certificate = drive(procedure, users)
        failures += label_coverage(certificate.threshold, K) < certificate.level
    assert_rate_at_most(failures, 100, DELTA)


def test_too_few_reports_give_the_trivial_threshold_and_a_reason() -> None:
    """Five reports certify nothing, whatever the variant and the channel."""
    for channel in (
        KaryRR(k=K, epsilon=8.0),
        SubsetSelection(k=K, epsilon=8.0),
        UnaryEncoding(k=K, epsilon=8.0),
    ):
        certificate = campaign(channel, 1, 5)
        assert certificate.trivial
        assert certificate.reason is not None
        assert certificate.reason.startswith("too few reports")
    probs, truth = label_population(5, K, np.random.default_rng(1), ties=False)
    users = LabelUsers(all_scores(SCORES["hps"], probs), truth, SeededEntropy(1))
    published = drive(
        labels.published(channel=KaryRR(k=K, epsilon=8.0), alpha=ALPHA, delta=DELTA, star=True),
        users,
    )
    assert published.trivial
    assert published.reason is not None


def test_no_reports_at_all_are_survived() -> None:
    """An empty tally ends in the trivial threshold."""
    nobody = lambda query: LabelTally(np.empty((0, K)), np.empty(0, dtype=np.int64))  # noqa: E731
    for procedure in (labels.certified, labels.published):
        assert drive(
            procedure(channel=KaryRR(k=K, epsilon=1.0), alpha=ALPHA, delta=DELTA), nobody
        ).trivial


def test_lies_widen_the_certificate() -> None:
    """With possible lies the threshold is not lower, and with too many it is trivial; certificates
    then say what false reports may depend on."""
    channel = KaryRR(k=K, epsilon=4.0)
    made = [campaign(channel, 3, 4_000, max_corrupt=lies) for lies in (0, 40, 4_000)]
    honest, wary, hopeless = (certificate.threshold for certificate in made)
    assert honest < wary < hopeless == 1
    stated = [LIARS_IN_ORDER in certificate.assumptions for certificate in made]
    assert stated == [False, True, True]


def test_many_labels_need_a_bound_of_set_sizes() -> None:
    """500 labels, epsilon 4, n = 5,000: the walk ends at 1 without the bound of 50 that plans have
    by rule, and in sets of fewer than ten labels with it."""
    rng, n, k = np.random.default_rng(1), 5_000, 500
    probs = np.exp(rng.normal(0, 5, (n, k)))
    probs /= probs.sum(axis=1, keepdims=True)
    truth = np.minimum((probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), k - 1)
    asked = {"channel": "auto", "epsilon": 4.0, "labels": k, "alpha": ALPHA}
    asked |= {"failure-probability": DELTA, "max-corrupt": 0}
    terms = LabelTerms.from_settings("certified", asked)
    assert terms.largest_set == 50
    channel = terms.make_channel(labels=k)
    users = LabelUsers(1 - probs, truth, SeededEntropy(1))
    free, bounded = (
        drive(
            labels.certified(channel=channel, alpha=ALPHA, delta=DELTA, largest_set=largest), users
        )
        for largest in (0, terms.largest_set)
    )
    assert free.trivial
    assert (1 - probs <= bounded.threshold).sum(axis=1).mean() < 10
    own = 1 - probs[np.arange(n), truth]
    assert np.mean(own <= bounded.threshold) >= 1 - ALPHA
    # So it is for owners and groups, here for one that has all records and a second with few.
    parts = np.where(np.arange(n) < 10, "b", "a")
    users = LabelUsers(1 - probs, truth, SeededEntropy(1), parts)
    for variant in ("per-owner", "for-every-group"):
        groups = {"group-column": "ward", "groups": "a,b"} if "group" in variant else {}
        terms = LabelTerms.from_settings(variant, asked | groups | {"owner-floor": 100})
        plan = replace(LABEL_PLAN, terms=terms, labels=k, alpha=ALPHA, expected_records=n)
        made = drive(plan_procedure(plan, draw_afresh), users)
        assert made.strata[0].threshold == pytest.approx(bounded.threshold, abs=0.01)
    with pytest.raises(BadInput, match="largest_set is 50 for labels:class-conditional"):
        LabelTerms(
            variant="class-conditional", channel="k-rr", epsilon=1.0, delta=0.1, largest_set=50
        )


def test_the_provider_may_bring_a_ladder() -> None:
    """A ladder even in set size on the provider's own data ends at 1, ascends, and is the one that
    is walked."""
    probs, _ = label_population(500, K, np.random.default_rng(9), ties=False)
    ladder = even_in_size(all_scores(SCORES["hps"], probs), 50)
    assert ladder[-1] == 1
    assert (np.diff(ladder) > 0).all()
    certificate = campaign(KaryRR(k=K, epsilon=4.0), 3, 2_000, ladder=ladder)
    assert {rung.threshold for rung in certificate.rungs} <= set(ladder.tolist())


@pytest.mark.parametrize(
    "bad",
    [[0.0, 0.9], [1.0, 0.5], [0.5, 0.5, 1.0], [1.0], [-0.1, 1.0], [0.1, np.nan, 1.0], [[0.5, 1.0]]],
)
def test_ladders_that_would_hide_labels_are_refused(bad: list[Any]) -> None:
    """A ladder must ascend strictly within [0, 1] and end at 1; at most 65,535 rungs."""
    for procedure in (
        labels.certified(
            channel=KaryRR(k=K, epsilon=1.0), alpha=ALPHA, delta=DELTA, ladder=np.array(bad)
        ),
        one_shot(channel=Bit(epsilon=1.0), alpha=ALPHA, delta=DELTA, n=1_000, ladder=np.array(bad)),
    ):
        with pytest.raises(BadInput, match="end at 1"):
            next(procedure)
    with pytest.raises(BadInput, match="65535"):
        check_ladder(np.linspace(0, 1, 70_000))


def test_split_conformal_takes_the_textbook_rank() -> None:
    """The ceil((n + 1)(1 - alpha))-th smallest score; five records are too few for 90 %."""
    assert split_conformal(np.arange(99) / 99, alpha=0.1).threshold == 89 / 99
    assert split_conformal(np.arange(9) / 9, alpha=0.1).threshold == 8 / 9
    certificate = split_conformal(np.full(5, 0.2), alpha=0.1)
    assert certificate.trivial
    assert certificate.reason == "too few records: rank 6 of 5"


def test_published_is_for_k_rr_by_sweep_or_bisection() -> None:
    """Another channel or method is refused with what is accepted."""
    with pytest.raises(BadInput, match="defined for k-rr"):
        next(labels.published(channel=SubsetSelection(k=K, epsilon=1.0), alpha=ALPHA, delta=DELTA))
    with pytest.raises(BadInput, match="sweep and bisection"):
        next(
            labels.published(
                channel=KaryRR(k=K, epsilon=1.0), alpha=ALPHA, delta=DELTA, method="newton"
            )
        )


def test_queries_refuse_what_cannot_be_asked() -> None:
    """Slices outside [0, 1], tallies that do not add up, shapes that do not match."""
    with pytest.raises(BadInput, match="slice"):
        LabelQuery(KaryRR(k=2, epsilon=1.0), 0.5, 0.5)
    with pytest.raises(BadInput, match="a row a report"):
        LabelTally(np.zeros((2, 3)), np.zeros(1))
    with pytest.raises(BadInput, match="a label a row"):
        LabelUsers(np.zeros((2, 3)), np.zeros(1), SeededEntropy(1))
    assert Bit(epsilon=1.0).name == "bit"


def test_delta_explains_the_papers_table() -> None:
    """At epsilon 4 and delta 0.001 Delta_L is 0.0225 (n = 10,832, k = 4) and 0.0172 (n = 23,640, k
    = 8)."""
    for n, k, expected in ((10_832, 4, 0.0225), (23_640, 8, 0.0172)):
        delta = labels.published_delta(channel=KaryRR(k=k, epsilon=4.0), n=n, delta=0.001)
        assert round(delta, 4) == expected
