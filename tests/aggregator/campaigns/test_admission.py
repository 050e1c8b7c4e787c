"""One rule on every path: what is sent over gRPC to a running server, and what an in-memory intake
(Flower's) is given."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.campaigns.admission import Admission, Sent
from confide.aggregator.campaigns.report_ids import ReportIds
from confide.aggregator.storage import views
from confide.protocol.methods.parts import BitTally
from confide.protocol.plan import digest, read_query
from confide.protocol.wire import wire_pb2 as wire
from tests.support.cards.central import NOISED
from tests.support.owners.answers import counts, reports
from tests.support.owners.hostile import Wire
from tests.support.servers.servers import Place, eventually, plan_now


@pytest.mark.parametrize(
    ("sent", "counted"),
    [
        # Each stream with its owner and the names in its batches.
        ([(0, [[0, 1, 2, 1]])], 0),
        ([(0, [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]])], 5),
        ([(0, [[0, 1, 2, 3, 4]]), (0, [[0, 1, 2, 3, 4]])], 5),
        ([(0, [[0, 1, 2]]), (0, [[2, 3], [3, 4, 5]])], 6),
        ([(0, [[0, 1, 2]]), (1, [[0, 1, 2]]), (1, [[2, 3]])], 4),
    ],
)
def test_the_same_batches_get_the_same_receipts_and_count_the_same(
    sent: list[tuple[int, list[list[int]]]], counted: int, place: Place
) -> None:
    """An id twice in a batch, a batch twice, batches that overlap, another owner's ids: receipts,
    status and metrics show what the tally counts, and the in-memory intake says the same; also
    after the server was killed."""
    plan = plan_now(variant="one-shot")
    campaign, tokens = place.campaign(plan), [place.enrol(name) for name in ("north", "south")]
    server = place.serve()
    (asked,) = eventually(lambda: place.store.queries(campaign))
    query, _ = read_query(asked, plan=plan, plan_digest=digest(plan.to_bytes()))
    intake = Admission(plan)
    intake.open(query, 0)
    for number, (owner, batches) in enumerate(sent):
        if number == 1:
            server.kill()
            server = place.serve()
        answers = [reports(plan, names) for names in batches]
        expected = [intake.admit(Sent(bytes([owner]), one)) for one in answers]
        code, accepted, duplicates = Wire(server, campaign, tokens[owner]).receipt(*answers)
        assert (accepted, duplicates) == (
            sum(one.accepted for one in expected),
            sum(one.duplicates for one in expected),
        )
        refused = [
            wire.Code.Name(one.code)
            for one in expected
            if one.code not in (wire.Code.OK, wire.Code.DUPLICATE)
        ]
        assert code == (refused or ["OK"])[0]
    tally = intake.tally()
    assert isinstance(tally, BitTally)
    assert sum(tally.answers) == counted
    assert place.store.turnout(campaign, 0).reports == counted
    one = views.overview(place.store.engine, campaign)
    assert one is not None
    assert [row.reports for row in views.rounds(place.store.engine, one)] == [counted]


def test_one_report_in_many_batches_is_not_enough(place: Place) -> None:
    """A round that ends with ten reports does not end with one report in ten different batches."""
    plan = plan_now(variant="published", minimum_reports=0)
    campaign, token = place.campaign(plan, enough=10), place.enrol("owner")
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    hand = Wire(server, campaign, token)
    again = [reports(plan, [0, *range(1, number)]) for number in range(2, 10)]
    assert hand.receipt(*again) == ("OK", 9, sum(range(2, 10)) - 9)
    assert place.store.rounds(campaign)[0].closed is None
    assert hand.receipt(reports(plan, [9])) == ("OK", 1, 0)
    eventually(lambda: place.store.rounds(campaign)[0].because == "enough")


def test_a_token_answers_once_as_a_whole(place: Place) -> None:
    """Two answers under made-up ids from one token, and one from another under an id of the first:
    two owners are counted."""
    plan = plan_now(NOISED)
    campaign, tokens = (
        place.campaign(plan, owners=2),
        [place.enrol(name) for name in ("north", "south")],
    )
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    north, south = (Wire(server, campaign, token) for token in tokens)
    assert north.receipt(counts(plan, 1_000, 500), counts(plan, 900, 400, name=b"p" * 16)) == (
        "OK",
        1,
        1,
    )
    assert south.receipt(counts(plan, 800, 300)) == ("OK", 1, 0)
    eventually(lambda: len(place.store.rounds(campaign)) > 1)
    assert "[1000, 500]" in (tally := place.store.rounds(campaign)[0].tally or "")
    assert "[800, 300]" in tally
    assert "900" not in tally


NAMES = st.integers(0, 7)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.tuples(NAMES, NAMES), max_size=12), max_size=8))
def test_ids_are_fresh_once(groups: list[list[tuple[int, int]]]) -> None:
    """In any order and in any company, also where ids agree in one half: what is fresh is what a
    set says."""
    known, seen = ReportIds(), set[tuple[int, int]]()
    for group in groups:
        ids = np.array(group, dtype=np.uint64).reshape(-1, 2).view(np.uint8).reshape(-1, 16)
        expected = [
            pair not in seen and pair not in group[:place] for place, pair in enumerate(group)
        ]
        assert known.fresh(ids).tolist() == expected
        known.add(ids)
        seen |= set(group)
