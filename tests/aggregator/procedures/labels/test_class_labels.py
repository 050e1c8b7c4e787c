import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.aggregator.procedures.labels import procedure as labels
from confide.aggregator.procedures.labels.betting import block_ends
from confide.aggregator.procedures.labels.by_class import class_conditional, class_payoffs
from confide.aggregator.procedures.ladder import public_ladder
from confide.protocol.certificate import BY_CLASS, LocalCertificate
from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.query import LabelTally
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.registry import SCORES
from confide.simulation.arrays.calibrate import calibrate
from confide.simulation.driver import LabelUsers, drive
from tests.support.truth.known import assert_rate_at_most, label_population

ALPHA = DELTA = 0.1
K = 3
# The first label is hard, the others are easy: HPS scores of the own label are uniform on [0, top].
TOPS = np.array([0.9, 0.3, 0.3])


def drawn(
    n: int, rng: np.random.Generator, frequencies: Any
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores of every label and own labels; F_y(q) is q / top of y."""
    truth = rng.choice(K, n, p=frequencies)
    scores = rng.uniform(0.5, 1, (n, K))
    scores[np.arange(n), truth] = rng.random(n) * TOPS[truth]
    return scores, truth


def campaign(seed: int, n: int, procedure: Any = class_conditional, **more: Any) -> Any:
    scores, truth = drawn(n, np.random.default_rng(seed), [0.1, 0.45, 0.45])
    users = LabelUsers(scores, truth, SeededEntropy("classes", seed))
    channel = KaryRR(k=K, epsilon=4.0)
    return drive(procedure(channel=channel, alpha=ALPHA, delta=DELTA, **more), users)


def thresholds(certificate: LocalCertificate) -> NDArray[np.float64]:
    return np.array([one.threshold for one in certificate.strata])


@pytest.mark.parametrize("channel", [make(k=K, epsilon=1.0) for make in LABEL_CHANNELS.values()])
def test_payoffs_are_sums_of_powers_of_z(channel: LabelChannel) -> None:
    """At every rung and block the sums are those of w(y) (1{S <= q} - (1 - alpha)), made afresh,
    and none is below -1."""
    scores, truth = drawn(200, np.random.default_rng(1), [0.2, 0.3, 0.5])
    reports = channel.randomize(truth, SeededEntropy(1))
    found = class_payoffs(
        LabelTally(scores, reports), channel, ladder=public_ladder(20), alpha=ALPHA, labels=K
    )
    weights = channel.weights(reports)
    ends = [*pairwise(block_ends(200))]
    for label, (records, rungs, payoffs) in enumerate(found):
        np.testing.assert_allclose(records, weights[:, label].sum())
        worst = max(weights.max() * 0.9, -weights.min() * 0.1)
        for j, q in enumerate(rungs):
            d = weights[:, label] * ((scores[:, label] <= q) - 0.9) / worst
            assert -1 - 1e-9 <= d.min() <= d.max() <= payoffs.most + 1e-9
            for power in range(4):
                expected = [(d[first:last] ** (power + 1)).sum() for first, last in ends]
                np.testing.assert_allclose(payoffs.sums[power, j], expected, atol=1e-9)


LADDER = public_ladder(100)


@pytest.mark.parametrize("joint", [False, True])
def test_every_class_is_covered_as_it_is_promised(joint: bool) -> None:
    """Of 100 campaigns each class fails in at most a share delta (false alarm 1e-6), and the hard
    class gets a higher threshold; with joint, any class fails in at most delta."""
    failed = np.zeros((100, K), dtype=np.bool_)
    for i in range(100):
        certificate = campaign(i, 2_000, joint=joint, ladder=LADDER)
        failed[i] = np.minimum(thresholds(certificate) / TOPS, 1) < 1 - ALPHA
    columns = [failed.any(axis=1)] if joint else [*failed.T]
    for column in columns:
        assert_rate_at_most(int(column.sum()), 100, DELTA)
    found = thresholds(certificate)
    assert found[0] > 0.8 > 0.35 > max(found[1:]) > 0.27
    assert certificate.threshold == found.max()


def test_label_shift_breaks_pooled_coverage_and_not_that_of_classes() -> None:
    """When the hard class becomes half of the records, the pooled threshold covers less than 0.8
    of them in each of 30 campaigns; thresholds by class cover 0.9 of every class, as promised
    (false alarm 1e-6), and so of any mixture."""
    usual, shifted = np.array([0.1, 0.45, 0.45]), np.array([0.5, 0.25, 0.25])
    failed = np.zeros((30, K), dtype=np.bool_)
    pooled_failed = 0
    for i in range(30):
        pooled = campaign(i, 3_000, labels.certified, ladder=LADDER)
        covered = np.minimum(pooled.threshold / TOPS, 1)
        pooled_failed += usual @ covered < 0.9
        assert shifted @ covered < 0.8
        failed[i] = thresholds(campaign(i, 3_000, ladder=LADDER)) / TOPS < 0.9
    assert_rate_at_most(pooled_failed, 30, DELTA)
    for column in failed.T:
        assert_rate_at_most(int(column.sum()), 30, DELTA)


def test_a_planted_test_of_the_pooled_coverage_is_caught() -> None:
    """One threshold for all labels, certified for all records together, leaves the hard class
    uncovered in every campaign."""
    failures = sum(
        campaign(i, 2_000, labels.certified, ladder=LADDER).threshold / TOPS[0] < 1 - ALPHA
        for i in range(30)
    )
    with pytest.raises(AssertionError):
        assert_rate_at_most(failures, 30, DELTA)


def test_rare_classes_keep_threshold_one_with_a_reason() -> None:
    """A class below the floor, and one with too few records for the test, are named; the others
    have their thresholds."""
    certificate = campaign(2, 2_000, class_floor=400)
    rare, *common = certificate.strata
    assert (rare.threshold, rare.rungs) == (1.0, ())
    assert rare.reason.startswith("too few records: about ")
    assert rare.reason.endswith("the plan asks for 400")
    assert all(one.threshold < 1 and one.reason is None for one in common)
    assert not certificate.trivial
    few = campaign(2, 60)
    assert few.strata[0].reason.startswith("too few reports: 60 in all")
    nobody = drive(
        class_conditional(channel=KaryRR(k=K, epsilon=1.0), alpha=ALPHA, delta=DELTA),
        lambda query: LabelTally(np.empty((0, K)), np.empty(0, dtype=np.int64)),
    )
    assert nobody.trivial
    assert nobody.reason == "no label has a threshold below 1"


def test_lies_and_a_joint_delta_widen_every_threshold() -> None:
    """Twenty possible lies, or a delta divided between the labels, lower no threshold."""
    plain = thresholds(campaign(3, 5_000))
    for more in ({"max_corrupt": 20}, {"joint": True}):
        other = thresholds(campaign(3, 5_000, **more))
        assert (other >= plain).all()
        assert (other > plain).any()


def test_a_calibration_predicts_with_the_threshold_of_every_label() -> None:
    """Sets hold y where the score of y is at most the threshold of y; single thresholds would make
    other sets."""
    probs, truth = label_population(4_000, 4, np.random.default_rng(5), ties=False)
    # Records of label 0 are hard: their probability is spread.
    probs[truth == 0] = 0.25
    made = calibrate(probs, truth, method="labels:class-conditional", epsilon=4.0, seed=1)
    certificate = made.certificate
    assert isinstance(certificate, LocalCertificate)
    limits = np.array(certificate.class_thresholds)
    assert len(set(limits.tolist())) > 1
    single = probs.astype(np.float32)
    expected = (1 - single) <= limits
    assert np.array_equal(made.predictor.predict_set(probs), expected)
    explained = made.predictor.explain(probs[:5])
    assert [[r.label for r in one.reasons if r.inside] for one in explained] == [
        sorted(np.flatnonzero(row), key=lambda y: 1 - single[i, y])
        for i, row in enumerate(expected[:5])
    ]
    assert "the label's own threshold" in str(explained[0])


def test_predictors_refuse_thresholds_that_fit_no_labels() -> None:
    """As many thresholds as labels, each within [0, 1]."""
    with pytest.raises(BadInput, match="one for each of the 3 labels"):
        Predictor(SCORES["hps"], 1.0, 3, class_thresholds=(0.5, 0.5))
    with pytest.raises(BadInput, match="must lie in"):
        Predictor(SCORES["hps"], 1.0, 2, class_thresholds=(0.5, 1.5))


def test_ten_classes_pay_little_for_a_threshold_each() -> None:
    """k = 10, epsilon 4, n = 10,000: mean excess per class is at most 0.025 (20 campaigns)."""
    excess, ladder = [], public_ladder(400)
    for i in range(20):
        rng = np.random.default_rng(i)
        truth = rng.integers(0, 10, 10_000)
        scores = rng.uniform(0.0, 1.0, (10_000, 10)) ** 0.2
        scores[np.arange(10_000), truth] = rng.random(10_000)
        users = LabelUsers(scores, truth, SeededEntropy("ten", i))
        certificate = drive(
            class_conditional(
                channel=KaryRR(k=10, epsilon=4.0), alpha=ALPHA, delta=DELTA, ladder=ladder
            ),
            users,
        )
        assert certificate.by == BY_CLASS
        excess.append(thresholds(certificate) - 0.9)
    assert np.mean(excess) <= 0.025
    assert np.mean(np.array(excess) < 0) <= DELTA + 4 * math.sqrt(DELTA * 0.9 / 200)
