"""Hostile owners at a real shuffler, and an aggregator that wants more than it may have."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from confide.aggregator.keys import read_key
from confide.aggregator.storage.stored_campaign import CALIBRATED
from confide.client.ledger.ledger import Ledger
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.methods.base import Batch
from confide.protocol.plan import Plan, digest, read_query, sign_plan
from confide.protocol.privacy.amplification import shuffled_epsilon
from confide.protocol.shuffling import Handover
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION, serialise
from confide.protocol.wire.packing import write_batch
from confide.protocol.wire.service import campaign_id
from confide.shuffler.cli import SIGNING_KEY
from confide.shuffler.storage import MixedRounds
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import KEY, owner
from tests.support.owners.queries import code
from tests.support.servers.servers import Place, eventually
from tests.support.servers.shufflers import ShufflerPlace, sealed_contribution


def reports(shuffler: ShufflerPlace, plan: Plan, n: int, *, rows: bytes | None = None) -> bytes:
    """An answer with n reports, sealed as owners do, or with other bytes in their place."""
    name = digest(plan.to_bytes())
    query, number = read_query(
        shuffler.store.query(campaign_id(name), 0), plan=plan, plan_digest=name
    )
    ids = np.frombuffer(os.urandom(16 * n), dtype=np.uint8).reshape(n, 16)
    columns = {"parts": np.zeros(n, dtype=np.int64), "reports": np.ones(n, dtype=np.bool_)}
    batch = write_batch(Batch(ids, columns), query=query, plan=name, round_=number)
    if rows is not None:
        batch.body = serialise(wire.SealedReports(sealed=rows))
    return serialise(wire.Answer(version=VERSION, batch=batch))


def test_owners_that_cheat_are_refused_or_count_for_what_they_are(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """Unknown tokens, reports of another size or unsealed, more than an owner has records, and the
    same again, under a second name too: refused, or counted once. Reports that do not open hide
    nobody and are not counted, in the round and in the plan's crowd; the card says how many there
    were, warns, and still verifies."""
    plan = shuffler.plan(crowd=700, variant="one-shot", minimum_owners=2)
    campaign = place.campaign(plan, owners=1)
    running = shuffler.relay(place.serve().port, campaign, owners=2)
    eventually(lambda: shuffler.store.rounds(campaign), what="the query at the shuffler")
    assert Wire(running, campaign, "nobody").submit(reports(shuffler, plan, 1)) == "UNAUTHENTICATED"
    hand = Wire(running, campaign, shuffler.enrol("cheat", records=600))
    assert hand.submit(reports(shuffler, plan, 3, rows=b"x" * 152)) == "MALFORMED"
    bare = wire.BitReports(parts=bytes(6), reports=b"\x07").SerializeToString()
    unsealed = wire.Answer.FromString(reports(shuffler, plan, 3))
    unsealed.batch.body = bare
    assert hand.submit(serialise(unsealed)) == "MALFORMED"
    signed = wire.Answer.FromString(reports(shuffler, plan, 3))
    signed.batch.handover.signature = b"s" * 64
    assert hand.submit(serialise(signed)) == "MALFORMED"
    garbage = reports(shuffler, plan, 100, rows=os.urandom(51 * 100))
    assert hand.receipt(garbage, last=False) == ("OK", 100, 0)
    first = reports(shuffler, plan, 400)
    assert hand.receipt(first, last=False) == ("OK", 400, 0)
    assert hand.receipt(first, last=False) == ("OK", 0, 400)
    again = Wire(running, campaign, shuffler.enrol("cheat-again", records=600))
    assert again.receipt(first, last=False) == ("OK", 0, 400)
    assert hand.submit(reports(shuffler, plan, 101)) == "SURPLUS"
    last = reports(shuffler, plan, 100)
    assert hand.receipt(last) == ("OK", 100, 0)
    made = sealed_contribution(shuffler, running, plan, tmp_path / "honest", seed=1, n=300)
    assert made.once().well
    eventually(lambda: place.store.campaign(campaign).state == CALIBRATED, what="calibrated")
    assert hand.receipt(last) == ("OK", 0, 100)
    card = parse_card(place.store.card(campaign, PUBLIC) or "")
    assert [finding.clause for finding in verify(card) if not finding.holds] == []
    shuffle = card.formal["shuffle"]
    assert (shuffle["rounds"][0]["reports"], shuffle["rounds"][0]["opened"]) == (900, 800)
    assert shuffle["n"] == card.formal["certificate"]["n"] == 800
    local = card.formal["certificate"]["epsilon"]
    assert shuffle["crowd_epsilon"] == shuffled_epsilon(local_epsilon=local, n=600, delta=1e-6)
    assert "more reports of a round did not open" in shuffle["warning"]
    found = card.provenance["contributors"]
    assert (found["owners"], found["largest"], found["of"]) == (2, 600, 900)


def test_a_round_below_its_crowd_is_never_handed_over(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """Its time is over, the owner has finished, the aggregator closes its own round and then its
    campaign: nothing leaves with one report too few, nor of one owner where the plan asks for two.
    """
    plan = shuffler.plan(crowd=301, variant="one-shot")
    lonely = shuffler.plan(crowd=10, variant="one-shot", minimum_owners=2, campaign="two owners")
    names = [place.campaign(one, owners=1) for one in (plan, lonely)]
    running = shuffler.relay(place.serve().port, *names, owners=1, enough=1, round_seconds=0.1)
    for name, one in zip(names, (plan, lonely), strict=True):
        folder = tmp_path / f"owner-{name}"
        assert sealed_contribution(shuffler, running, one, folder, seed=1, n=300).once().well
    time.sleep(1.0)
    for name in names:
        assert shuffler.store.rounds(name)[0].closed is None
        place.store.close(name, now=time.time())
    time.sleep(1.0)
    for name in names:
        assert MixedRounds(shuffler.store.engine).mixed(name, 0) is None
        assert place.store.batches(name, 0) == 0


def test_an_aggregator_takes_reports_from_the_shuffler_of_the_plan_only(
    place: Place, shuffler: ShufflerPlace
) -> None:
    """An enrolled owner that sends directly, or signs a handover itself, is refused; and a round of
    which a part is missing, or that is not the one signed, gives no certificate."""
    plan = shuffler.plan(crowd=10, variant="one-shot")
    campaign = place.campaign(plan)
    shuffler.store.create(sign_plan(plan, KEY), place.store.campaign(campaign).settings, now=1.0)
    shuffler.store.open(campaign, now=1.0)
    upstream = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    shuffler.store.ask(campaign, 0, place.store.query(campaign, 0), now=1.0, seconds=1.0)
    hand = Wire(upstream, campaign, place.enrol("owner"))
    direct = reports(shuffler, plan, 20)
    assert hand.submit(direct) == "SHUFFLER_ONLY"
    forged = wire.Answer.FromString(direct)
    forged.batch.handover.CopyFrom(
        wire.SignedHandover(
            handover=wire.Handover(plan=plan.model, reports=20).SerializeToString(),
            signature=b"s" * 64,
        )
    )
    assert hand.submit(serialise(forged)) == "BAD_SIGNATURE"
    assert place.store.batches(campaign, 0) == 0


@pytest.mark.parametrize("missing", [0, 1])
def test_a_round_that_is_not_the_one_signed_gives_no_certificate(
    missing: int, place: Place, shuffler: ShufflerPlace
) -> None:
    """A part is lost on the way, or a report is another than the shuffler signed."""
    plan = shuffler.plan(crowd=10, variant="one-shot", minimum_reports=0)
    campaign = place.campaign(plan)
    upstream = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    shuffler.store.create(sign_plan(plan, KEY), place.store.campaign(campaign).settings, now=1.0)
    shuffler.store.open(campaign, now=1.0)
    shuffler.store.ask(campaign, 0, place.store.query(campaign, 0), now=1.0, seconds=1.0)
    answer = wire.Answer.FromString(reports(shuffler, plan, 20))
    said = Handover(digest(plan.to_bytes()), 0, 20 + missing, b"d" * 32, 1, 20)
    answer.batch.handover.CopyFrom(said.sign(read_key(shuffler.keys / SIGNING_KEY)))
    hand = Wire(upstream, campaign, place.enrol("shuffler"))
    assert hand.announced(serialise(answer)) == "OK"
    if missing:
        time.sleep(1.0)
        assert place.store.rounds(campaign)[0].closed is None
        place.store.close(campaign, now=time.time())
    reason = eventually(lambda: place.store.campaign(campaign).reason, what="a failed campaign")
    assert "exactly those that it signed" in reason


def test_an_owner_answers_a_shuffled_plan_through_its_shuffler_only(
    shuffler: ShufflerPlace, place: Place, tmp_path: Path
) -> None:
    """Asked over any other connection, Flower's among them, it refuses with a code, spends nothing,
    and keeps what it drew for the shuffler; through the shuffler it seals every report."""
    plan = shuffler.plan(crowd=10, variant="one-shot")
    campaign, signed = place.campaign(plan), sign_plan(plan, KEY)
    place.serve()
    query = place.store
    eventually(lambda: query.rounds(campaign))
    asked = query.query(campaign, 0)

    def at(route: bytes) -> bytes:
        held = owner(tmp_path / "owner", seed=1, n=200, now=lambda: datetime.now(UTC), route=route)
        return held.answer(signed, asked)

    for route in (b"", b"r" * 32):
        assert code(at(route)) == "SHUFFLER_ONLY"
    assert Ledger(tmp_path / "owner" / "ledger.sqlite").spent_by_record() == (0, 0.0)
    sealed = at(shuffler.authority)
    body = wire.Answer.FromString(sealed).batch.body
    assert len(wire.SealedReports.FromString(body).sealed) == 200 * 51
    assert code(at(b"")) == "SHUFFLER_ONLY"
    assert at(shuffler.authority) == sealed
    records, spent = Ledger(tmp_path / "owner" / "ledger.sqlite").spent_by_record()
    assert (records, spent) == (200, plan.epsilon)
