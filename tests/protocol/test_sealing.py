"""Sealed reports: who opens them, where, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.methods.sealed import SealedQuery
from confide.protocol.plan import Plan, digest, read_query, write_query
from confide.protocol.sealing import AROUND, seal, sealing_key, unseal
from confide.protocol.shuffling import Handover, Shuffling, check_handover, handover_digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import serialise
from tests.support.cards.shuffled_plans import NAME, OURS, QUERY, SHUFFLED, SHUFFLER, SHUFFLING
from tests.support.owners.owners import KEY, PLAN, changed


def sealed_query(round_: int = 0) -> SealedQuery:
    query, _ = read_query(
        write_query(QUERY, plan=NAME, round_=round_), plan=SHUFFLED, plan_digest=NAME
    )
    assert isinstance(query, SealedQuery)
    return query


def test_a_report_opens_for_its_aggregator_in_its_round_only() -> None:
    """Another key, campaign or round, or one changed byte, and nothing comes out."""
    sealed = seal(b"abc", OURS.public_key(), plan=NAME, round_=3)
    assert unseal(sealed, OURS, plan=NAME, round_=3) == b"abc"
    assert unseal(sealed, sealing_key(SHUFFLER), plan=NAME, round_=3) is None
    assert unseal(sealed, OURS, plan=bytes(32), round_=3) is None
    assert unseal(sealed, OURS, plan=NAME, round_=4) is None
    for place in (0, 40, len(sealed) - 1):
        changed_ = bytearray(sealed)
        changed_[place] ^= 1
        assert unseal(bytes(changed_), OURS, plan=NAME, round_=3) is None
    assert unseal(b"", OURS, plan=NAME, round_=3) is None


def test_all_reports_have_one_size_and_open_as_they_were() -> None:
    """The first threshold and the last, ones and zeros: lengths say nothing of a report."""
    columns = {"parts": np.array([0, 255, 256, 299]), "reports": np.array([0, 1, 1, 0], dtype=bool)}
    query = sealed_query()
    body = query.pack(columns)
    assert query.sealed_bytes == SHUFFLED.terms.row_bytes + AROUND
    query.check(body, 4, most=4)
    rows = query.unpack(body, 4)["sealed"]
    assert len({row.tobytes() for row in rows}) == 4
    opened = query.opened(rows, OURS)
    assert opened["parts"].tolist() == columns["parts"].tolist()
    assert opened["reports"].tolist() == columns["reports"].tolist()
    assert len(sealed_query(1).opened(rows, OURS)["parts"]) == 0


def test_what_opens_and_is_no_report_is_left_out() -> None:
    """A threshold that was not asked, a bit that is 2, and a report of another length."""
    query = sealed_query()
    rows = [b"\x2c\x01\x00", b"\x00\x00\x02", b"\x05\x00\x01"]
    sealed = [seal(row, OURS.public_key(), plan=NAME, round_=0) for row in rows]
    found = query.opened(np.array([np.frombuffer(one, dtype=np.uint8) for one in sealed]), OURS)
    assert (found["parts"].tolist(), found["reports"].tolist()) == ([5], [True])


@pytest.mark.parametrize("n", [0, 3, 5])
def test_a_body_of_another_size_is_refused(n: int) -> None:
    """The shuffler cannot open reports, but it counts their bytes."""
    body = sealed_query().pack({"parts": np.zeros(4, int), "reports": np.zeros(4, bool)})
    with pytest.raises(Refused):
        sealed_query().check(body, n, most=10)


def test_a_plan_with_a_shuffler_comes_back_from_its_bytes() -> None:
    assert Plan.from_bytes(SHUFFLED.to_bytes()) == SHUFFLED
    assert digest(SHUFFLED.to_bytes()) != digest(PLAN.to_bytes())


def test_plans_that_a_shuffler_cannot_help_are_refused() -> None:
    """Labels tell records apart by what is in clear; lies alone are no crowd."""
    with pytest.raises(BadInput, match="tell owners or records apart"):
        replace(
            SHUFFLED, terms=LabelTerms(variant="certified", channel="k-rr", epsilon=4.0, delta=0.1)
        )
    with pytest.raises(BadInput, match="honest"):
        changed(SHUFFLED, max_corrupt=100)
    with pytest.raises(BadInput, match="crowd is 0"):
        replace(SHUFFLING, crowd=0)
    with pytest.raises(BadInput, match="31 bytes"):
        replace(SHUFFLING, key=b"k" * 31)


def test_only_the_shuffler_of_the_plan_hands_over() -> None:
    """Without a handover, with that of another key, or of another round, a batch is refused; where
    owners send, a handover is."""
    handover = Handover(NAME, 0, 1, handover_digest(b"", b""), 1, 1)

    def code(signed: wire.SignedHandover | None, shuffling: Shuffling | None = SHUFFLING) -> str:
        batch = wire.ReportBatch(plan=NAME, round=0, handover=signed)
        try:
            check_handover(batch, shuffling)
        except Refused as refused:
            return wire.Code.Name(refused.code)
        return "OK"

    assert code(handover.sign(SHUFFLER)) == "OK"
    assert code(None) == "SHUFFLER_ONLY"
    assert code(None, None) == "OK"
    assert code(handover.sign(SHUFFLER), None) == "MALFORMED"
    assert code(handover.sign(KEY)) == "BAD_SIGNATURE"
    assert code(replace(handover, round=1).sign(SHUFFLER)) == "WRONG_ROUND"
    altered = handover.sign(SHUFFLER)
    altered.handover = serialise(wire.Handover(plan=NAME, reports=9))
    assert code(altered) == "BAD_SIGNATURE"


def test_no_shuffler_hides_reports_of_owners_that_are_tested_one_by_one() -> None:
    """A plan that tests owners, or keeps to their mixture, has no place for a shuffler."""
    plain = BitTerms.of(PLAN.terms)
    for terms in (replace(plain, variant="per-owner"), replace(plain, planned_mixture=True)):
        with pytest.raises(BadInput, match="tell owners or records apart"):
            changed(SHUFFLED, terms=terms)
