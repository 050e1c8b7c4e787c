"""Campaigns that owners answer: once a record, unlinkable, whatever others send."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import TooFewReports, run_campaign
from confide.client.ledger.ledger import Ledger
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.wire import wire_pb2 as wire
from tests.support.owners.owners import LABEL_PLAN, PLAN, POLICY, K, asking, changed, owner, signed
from tests.support.owners.queries import bit_query, code, label_query
from tests.support.truth.known import label_coverage


@pytest.mark.parametrize(
    "plan",
    [PLAN, changed(PLAN, variant="one-shot"), LABEL_PLAN, changed(LABEL_PLAN, channel="subset")],
)
def test_a_campaign_runs_from_owners_to_certificate(plan: Any, tmp_path: Path) -> None:
    """Three owners behind policy and ledger answer over the wire format; the threshold covers and
    every record is counted."""
    owners = [owner(tmp_path / str(seed), seed=seed) for seed in range(3)]
    outcome = run_campaign(plan, asking(signed(plan), owners))
    certificate = outcome.certificate
    assert certificate.n == 6_000
    assert set(outcome.received) == {"OK"}
    assert certificate.randomness == "seeded (simulation only)"
    assert not certificate.trivial
    assert label_coverage(certificate.threshold, K) >= 0.9


def test_a_campaign_run_again_gets_the_same_answers_and_spends_nothing(tmp_path: Path) -> None:
    """Fresh processes on the same ledgers, other randomness: the answers are remembered, so the
    threshold is the same."""
    first = run_campaign(
        PLAN, asking(signed(), [owner(tmp_path / str(seed), seed=seed) for seed in range(3)])
    )
    spent = [Ledger(tmp_path / str(seed) / "ledger.sqlite").spent_by_record() for seed in range(3)]
    again = [
        owner(tmp_path / str(seed), seed=seed, entropy=lambda size: b"\xff" * size)
        for seed in range(3)
    ]
    assert run_campaign(PLAN, asking(signed(), again)) == first
    assert (
        [Ledger(tmp_path / str(seed) / "ledger.sqlite").spent_by_record() for seed in range(3)]
        == spent
        == [(2_000, 4.0)] * 3
    )


def test_a_record_answers_a_campaign_once(tmp_path: Path) -> None:
    """Asked the same, the same bytes; asked with another threshold or slice, nothing more is drawn
    for spent records."""
    one = owner(tmp_path)
    first = one.answer(signed(), bit_query(0.5))
    assert code(first) == "OK"
    assert one.answer(signed(), bit_query(0.5)) == first
    for again in (
        bit_query(0.6),
        bit_query(0.5, stop=0.5),
        bit_query(0.5, 0.5),
        bit_query(0.5, round_=1),
    ):
        assert code(one.answer(signed(), again)) == "ALREADY_SPENT"
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (2_000, 4.0)


def test_overlapping_slices_reach_only_fresh_records(tmp_path: Path) -> None:
    """A slice that overlaps an earlier one is answered by the records that had not answered yet."""
    one = owner(tmp_path)
    half = wire.Answer.FromString(one.answer(signed(), bit_query(0.5, stop=0.5)))
    rest = wire.Answer.FromString(one.answer(signed(), bit_query(0.6)))
    ids = [
        batch.ids[i : i + 16]
        for batch in (half.batch, rest.batch)
        for i in range(0, len(batch.ids), 16)
    ]
    assert len(ids) == len(set(ids)) == 2_000


def test_a_hostile_aggregator_stays_within_policy(tmp_path: Path) -> None:
    """New campaign names, other thresholds, higher epsilons: refusals, and no record spends more
    than it may."""
    one = owner(tmp_path)
    outcomes: Counter[str] = Counter()
    for i in range(12):
        plan = changed(PLAN, campaign=f"again {i}", epsilon=(1.0, 3.0, 4.0, 20.0)[i % 4])
        outcomes[code(one.answer(signed(plan), bit_query(0.1 + i / 20, plan=plan)))] += 1
    assert set(outcomes) == {"OK", "ALREADY_SPENT", "EPSILON_PER_CAMPAIGN"}
    records, most = Ledger(tmp_path / "ledger.sqlite").spent_by_record()
    assert (records, most) == (2_000, 8.0)


def test_answers_from_the_operating_system_are_not_stamped(tmp_path: Path) -> None:
    """Only a campaign without a single seeded report is certified as private."""
    real, seeded = owner(tmp_path / "a", seed=0, entropy=os_entropy), owner(tmp_path / "b", seed=1)
    assert run_campaign(PLAN, asking(signed(), [real])).certificate.randomness == "operating system"
    assert (
        run_campaign(PLAN, asking(signed(), [real, seeded])).certificate.randomness
        == "seeded (simulation only)"
    )


def test_report_ids_do_not_link_campaigns(tmp_path: Path) -> None:
    """The same records answer two campaigns under different names."""
    one = owner(tmp_path)
    other = changed(PLAN, campaign="other")
    first, second = (
        wire.Answer.FromString(one.answer(signed(p), bit_query(0.5, plan=p))).batch.ids
        for p in (PLAN, other)
    )
    names = [{data[i : i + 16] for i in range(0, len(data), 16)} for data in (first, second)]
    assert len(names[0]) == len(names[1]) == 2_000
    assert not names[0] & names[1]


def test_the_order_of_reports_does_not_link_campaigns(tmp_path: Path) -> None:
    """Reports leave in the order of their ids, which is that of a keyed hash, not in the order of
    the owner's file."""
    one, orders = owner(tmp_path), []
    for plan in (changed(LABEL_PLAN, campaign=name) for name in ("first", "second")):
        batch = wire.Answer.FromString(one.answer(signed(plan), label_query(plan))).batch
        ids = [batch.ids[i : i + 16] for i in range(0, len(batch.ids), 16)]
        assert ids == sorted(ids)
        orders.append(wire.LabelReports.FromString(batch.body).probabilities)
    assert len(orders[0]) == len(orders[1])
    assert orders[0] != orders[1]


def test_too_few_reports_fail_the_campaign_with_the_reasons(tmp_path: Path) -> None:
    """Below the plan's minimum there is no certificate, and the error says what came in instead."""
    refusing = owner(tmp_path, policy=replace(POLICY, methods=frozenset()))
    with pytest.raises(
        TooFewReports, match=r"at least 100; answers received: METHOD_NOT_ALLOWED \d"
    ):
        run_campaign(PLAN, asking(signed(), [refusing]))


def test_garbage_silence_and_repetition_do_not_disturb_a_campaign(tmp_path: Path) -> None:
    """One owner answers garbage, one never, one twice: the campaign completes on the right
    counts."""
    plan = signed()
    good, talkative = owner(tmp_path / "a", seed=0), owner(tmp_path / "b", seed=1)

    def ask(query: bytes) -> list[Sent]:
        said = Sent(b"talkative", talkative.answer(plan, query))
        return [
            Sent(b"good", good.answer(plan, query)),
            Sent(b"other", b"\xff\x00garbage"),
            said,
            said,
        ]

    outcome = run_campaign(PLAN, ask)
    rounds = outcome.received["MALFORMED"]
    assert outcome.received == {"OK": 2 * rounds, "MALFORMED": rounds, "DUPLICATE": rounds}
    quiet = run_campaign(
        PLAN, asking(plan, [owner(tmp_path / "a", seed=0), owner(tmp_path / "b", seed=1)])
    )
    assert quiet.certificate == outcome.certificate
    assert outcome.certificate.n == 4_000
