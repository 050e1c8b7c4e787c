"""Thresholds for every label from pairs of label and bit: what they prove, and what they are."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from confide import calibrate
from confide.aggregator.procedures.pairs.procedure import class_conditional
from confide.aggregator.procedures.pairs.stages import RESERVE
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.verify.local.pairs import RESERVE as VERIFIED_RESERVE
from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.registry import auto
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.pairs import PairQuery, PairTally, PairTerms
from confide.simulation.driver import PairUsers, drive
from tests.support.cards import KEY

ALPHA = DELTA = 0.1
K = 3
CHANNEL = auto(k=2 * K + 1, epsilon=4.0)


def campaign(seed: int, n: int, scores: Any = None, **more: Any) -> LocalCertificate:
    """Labels are even; scores are uniform unless given, so that coverage is the threshold."""
    rng = np.random.default_rng(seed)
    own = rng.random(n) if scores is None else scores(rng, n)
    users = PairUsers(own, rng.integers(K, size=n), SeededEntropy("pairs", seed))
    asked: dict[str, Any] = {"alpha": ALPHA, "delta": DELTA, "n": n, **more}
    found: LocalCertificate = drive(class_conditional(channel=CHANNEL, labels=K, **asked), users)
    return found


def hair_below(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Between the two scores coverage is slightly below 0.9: any threshold below 1 is false."""
    return np.where(rng.random(n) < 0.8999, 0.6, 1.0)


@pytest.mark.parametrize("scores", [None, hair_below])
def test_joint_promises_fail_as_seldom_as_delta(scores: Any) -> None:
    """Of 60 joint campaigns, so many fail with probability below 1e-5 if 0.1 of all do."""
    failed = 0
    for seed in range(60):
        found = campaign(seed, 6_000, scores, joint=True)
        false = 1.0 if scores else 1 - ALPHA
        failed += min(one.threshold for one in found.strata) < false
    assert failed <= binom.isf(1e-5, 60, DELTA)


def test_thresholds_are_near_the_target_where_records_are_many() -> None:
    found = [q for seed in range(4) for q in campaign(seed, 40_000).class_thresholds]
    assert np.mean(found) < 0.95
    assert np.mean([q < 1 for q in found]) > 0.9


def test_levels_are_those_that_are_verified() -> None:
    assert RESERVE == VERIFIED_RESERVE


def test_few_records_and_lies_end_with_a_reason() -> None:
    """A rare label, too few reports, and so many lies that nothing passes."""
    rare = campaign(1, 20_000, class_floor=10_000)
    assert all(one.reason and "too few records" in one.reason for one in rare.strata)
    assert rare.reason == "no label has a threshold below 1"
    few = campaign(1, 50).strata[0].reason
    assert few is not None
    assert few.startswith("too few reports: 50 in all, of which about ")
    assert campaign(1, 6_000, max_corrupt=3_000).trivial


def test_a_symbol_is_label_and_bit() -> None:
    """Labels that the plan does not have share the last symbol, whatever their score."""
    query = PairQuery(CHANNEL, 0.0, 1.0, ((0.5, 0.2, 1.0),))
    labels, scores = np.array([0, 0, 1, 2, 3, -1]), np.array([0.5, 0.6, 0.1, 1.0, 0.0, 0.0])
    found = query.symbols(labels, scores, np.zeros(6, dtype=np.int64))
    assert found.tolist() == [1, 0, 3, 5, 6, 6]
    with pytest.raises(BadInput, match="accepted is one a label"):
        PairQuery(CHANNEL, 0.0, 1.0, ((0.5, 0.2),))


def test_a_query_travels_and_a_broken_one_is_refused() -> None:
    terms = PairTerms(variant="class-conditional", epsilon=4.0, delta=DELTA, channel=CHANNEL.name)
    query = PairQuery(CHANNEL, 0.25, 0.5, ((0.5, 0.2, 1.0), (0.1, 0.2, 0.3)))
    assert terms.read_query(query.to_body(), labels=K) == query
    assert PairTerms.from_bytes(terms.to_bytes()) == terms
    with pytest.raises(Refused):
        terms.read_query(query.to_body(), labels=2)


def test_no_answer_is_no_threshold() -> None:
    empty = CHANNEL.unpack(b"", 0)
    found = drive(
        class_conditional(channel=CHANNEL, labels=K, alpha=ALPHA, delta=DELTA, n=1_000),
        lambda _: PairTally(np.empty(0, dtype=np.int64), empty),
    )
    assert found.trivial
    assert found.n == 0


def test_a_calibration_ends_in_a_card_with_a_threshold_a_label() -> None:
    rng = np.random.default_rng(2)
    truth = rng.integers(K, size=30_000)
    logits = rng.normal(size=(30_000, K)) + 2.5 * np.eye(K)[truth]
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    made = calibrate(probs, truth, method="pairs", score="aps", epsilon=4.0, seed=1)
    assert not made.certificate.trivial
    findings = verify(made.card(KEY), key=KEY.public_key().public_bytes_raw())
    assert [finding.clause for finding in findings if not finding.holds] == []
