"""Thresholds for every label from pairs of label and bit: what they prove, and what they are."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from confide import calibrate
from confide.aggregator.procedures.pairs import procedure
from confide.aggregator.procedures.pairs.procedure import STAGE_SHARES, class_conditional
from confide.aggregator.procedures.pairs.stages import KEPT, AskedOfLabel, Levels
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.verify.local.pairs import MOST_STAGES, evidence
from confide.protocol.certificate import LabelRung, LocalCertificate
from confide.protocol.channels.registry import auto
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.pairs import PairQuery, PairTally, PairTerms
from confide.simulation.driver import PairUsers, drive
from tests.support.cards.cards import KEY

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


def at_the_target(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Coverage is exactly 0.9 at every threshold below 1."""
    return np.where(rng.random(n) < 0.9, 0.0, 1.0)


def hostile(_: Any, levels: Levels, *__: Any, **___: Any) -> AskedOfLabel:
    """A lower threshold at every stage, which all but a little is bet on at once."""
    return AskedOfLabel(0.9 - 0.1 * len(levels.rungs), 1 - KEPT)


def pass_at_the_target(campaigns: int, *, lies: int = 0, max_corrupt: int = 0) -> int:
    """How many campaigns of one label certify anything where coverage is exactly 0.9.

    In each of the five stages, so many reports that the score is above the threshold say the
    opposite.
    """
    channel, n, passed = auto(k=3, epsilon=4.0), 3_000, 0
    for seed in range(campaigns):
        own = at_the_target(np.random.default_rng(seed), n)
        users = PairUsers(own, np.zeros(n, dtype=np.int64), SeededEntropy("target", seed))

        def answer(query: PairQuery, users: PairUsers = users) -> PairTally:
            tally = users(query)
            if len(query.thresholds) == 1:
                tally.reports[np.flatnonzero(tally.reports == 0)[:lies]] = 1
            return tally

        asked: dict[str, Any] = {"alpha": ALPHA, "delta": DELTA, "n": n, "max_corrupt": max_corrupt}
        passed += not drive(class_conditional(channel=channel, labels=1, **asked), answer).trivial
    return passed


def test_so_many_lies_as_are_allowed_for_do_not_break_the_promise() -> None:
    """Of 60 campaigns, so many certify with probability below 1e-5 if 0.1 of all do; they do
    where no lie is allowed for."""
    most = binom.isf(1e-5, 60, DELTA)
    assert pass_at_the_target(60, lies=10, max_corrupt=50) <= most
    assert pass_at_the_target(60, lies=10) > most


def test_promises_hold_whatever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each stage asks a fresh threshold, so many of 100 campaigns certify anything with
    probability below 1e-5 if 0.1 of all do.

    More do if a stage moves the level of its own threshold alone.
    """
    monkeypatch.setattr(procedure, "place", hostile)
    most = binom.isf(1e-5, 100, DELTA)
    assert 0 < pass_at_the_target(100) <= most

    def alone(levels: Levels, threshold: float) -> float:
        return float(np.log(levels.delta) + sum(log for q, log in levels.moved if q == threshold))

    monkeypatch.setattr(Levels, "log_level", alone)
    assert pass_at_the_target(100) > most


@pytest.mark.parametrize(("n", "most"), [(10_000, 0.07), (50_000, 0.036)])
def test_ten_labels_are_near_their_target(n: int, most: float) -> None:
    """Mean excess of ten even labels; two stages with a threshold each had 0.080 and 0.041."""
    channel, found = auto(k=21, epsilon=4.0), list[float]()
    for seed in range(5):
        rng = np.random.default_rng([seed, n])
        users = PairUsers(rng.random(n), rng.integers(10, size=n), SeededEntropy("ten", seed))
        asked: dict[str, Any] = {"alpha": ALPHA, "delta": DELTA, "n": n}
        found += drive(
            class_conditional(channel=channel, labels=10, **asked), users
        ).class_thresholds
    assert np.mean(found) - (1 - ALPHA) < most


def test_stages_are_those_that_are_verified() -> None:
    assert len(STAGE_SHARES) == MOST_STAGES


@pytest.mark.parametrize("max_corrupt", [0, 3])
def test_every_label_is_decided_again(max_corrupt: int) -> None:
    """Honest evidence holds, with and without lies, for labels that passed or failed on the way."""
    for seed, n in enumerate((1_000, 4_000, 12_000, 40_000)):
        found = campaign(seed, n, max_corrupt=max_corrupt)
        for one in found.strata:
            assert wrong(found, one.rungs, one.threshold, max_corrupt) == []


def wrong(found: LocalCertificate, rungs: Any, threshold: float, lies: int = 0) -> list[str]:
    """What the verifier finds wrong with the evidence of one label, as if there were no other."""
    stages = [dict(asdict(rung)) for rung in rungs]
    layer = {
        "strata": {"parts": [{"rungs": stages}]},
        "planned": None,
        "slack": None,
        "level": found.level,
        "alpha": found.alpha,
        "delta": found.delta,
        "n": found.n,
        "threshold": threshold,
        "rungs": stages,
    }
    return [finding.clause for finding in evidence(layer, lies) if not finding.holds]


def test_lies_about_stages_are_named() -> None:
    """Too little needed, a stage that is tested as if none had failed, one too many, one above what
    is certified, a threshold that nothing certifies, and capital that no report could earn."""
    found = campaign(5, 40_000)
    one = max(found.strata, key=lambda part: sum(not rung.passed for rung in part.rungs))
    rungs: list[Any] = list(one.rungs)
    own = one.threshold
    failed = next(i for i, rung in enumerate(rungs) if not rung.passed)
    place = "certificate/rungs"
    fewer = replace(rungs[0], needed=rungs[0].needed - 0.01)
    assert f"{place}/0/needed" in wrong(found, [fewer, *rungs[1:]], own)
    assert f"{place}/0/needed" in wrong(found, [rungs[0]], own, lies=10)
    again = LabelRung(rungs[failed].threshold, 9.0, np.log(1 / DELTA))
    kept = [*rungs[: failed + 1], again]
    assert f"{place}/{failed + 1}/needed" in wrong(found, kept, again.threshold)
    assert "certificate/rungs" in wrong(found, [rungs[failed]] * (MOST_STAGES + 1), own)
    passed = LabelRung(0.95, 9.0, np.log(1 / DELTA))
    above = LabelRung(0.97, 9.0, np.log(1 / DELTA))
    assert wrong(found, [passed], 0.95) == []
    assert wrong(found, [passed, above], 0.95) == [f"{place}/1/threshold"]
    assert wrong(found, [passed], 0.94) == ["certificate/threshold"]
    rich = LabelRung(0.95, found.n * 0.41, np.log(1 / DELTA))
    assert wrong(found, [rich], 0.95) == [f"{place}/0/log_capital"]


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
