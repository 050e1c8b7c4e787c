"""How much of a result may come from one owner."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from confide.aggregator.campaigns.admission import Admission, Sent
from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.counts.central import owner_noised
from confide.aggregator.storage import views
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.methods.base import Batch
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.counts.queries import DEVIATIONS, CountQuery, CountTally
from confide.protocol.plan import digest
from confide.protocol.wire import wire_pb2 as wire
from tests.support.cards.central import NOISED
from tests.support.owners.answers import answer as packed
from tests.support.owners.answers import bit_batch, counts
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import (
    NOW,
    PLAN,
    asking,
    central,
    changed,
    channel_of,
    owner,
    signed,
)
from tests.support.servers.servers import Place, aggregator, eventually, plan_now

# How far noise may carry a count.
REACH = math.isqrt(DEVIATIONS**2 * central(NOISED).noise_variance)


def test_a_certificate_that_allows_for_the_largest_says_so(tmp_path: Path) -> None:
    """With `max_corrupt` at least what the largest contributor sent, its lie is within what the
    certificate allows for."""
    plan = changed(PLAN, max_corrupt=100)
    owners = [owner(tmp_path / str(i), seed=i, n=100) for i in range(60)]
    card = campaign_card(
        plan, run_campaign(plan, asking(signed(plan), owners)), diagnostic={}, issued=NOW
    )
    assert card.provenance["contributors"]["if_the_largest_lied"].endswith(
        "the certificate holds: max_corrupt is 100"
    )


@pytest.mark.parametrize("records", [None, 700])
def test_one_owner_is_bounded_over_the_whole_campaign(records: int | None, place: Place) -> None:
    """It invents reports in every round of a campaign planned for 1,200: in all no more are counted
    than it was enrolled with, or 1.25 times what the plan expects; the card names what came from
    it."""
    plan = plan_now(minimum_reports=0, expected_records=1_200)
    most = 1_500 if records is None else records
    campaign, token = place.campaign(plan, owners=1), place.enrol("owner", records=records)
    server = place.serve()
    hand, invented, accepted = Wire(server, campaign, token), 0, 0
    eventually(lambda: place.store.rounds(campaign))
    while not _over(place, campaign):
        number = place.store.rounds(campaign)[-1].number
        for _ in range(20):
            made = bit_batch(100, first=invented)
            nothing = np.zeros(100, dtype=np.int64)
            batch = Batch(made.ids, {"reports": nothing.astype(np.bool_), "parts": nothing})
            sent = packed(batch, round_=number, plan=digest(plan.to_bytes()))
            accepted += hand.receipt(sent, last=False)[1]
            invented += 100
        hand.receipt()
        eventually(partial(_later, place, campaign, number))
    assert accepted == most < invented
    card = parse_card(place.store.card(campaign, PUBLIC) or "")
    assert card.formal["certificate"]["n"] == accepted
    said = card.provenance["contributors"]
    assert (said["owners"], said["largest"], said["of"]) == (1, accepted, accepted)
    assert said["if_the_largest_lied"].endswith("nothing is guaranteed")


def _later(place: Place, campaign: str, number: int) -> bool:
    return place.store.rounds(campaign)[-1].number > number or _over(place, campaign)


def _over(place: Place, campaign: str) -> bool:
    return place.store.campaign(campaign).state == "calibrated"


def test_one_node_is_bounded_over_flower() -> None:
    """The same bound where a node answers over Flower: what goes beyond it is SURPLUS, and other
    nodes are not touched."""
    intake, channel = Admission(PLAN), channel_of(PLAN)
    receipts = []
    for round_, (start, stop) in enumerate([(0.0, 0.9), (0.9, 0.95), (0.95, 1.0)]):
        intake.open(BitQuery(channel, start, stop, (0.5, 0.75)), round_)
        made = packed(
            bit_batch(7_000, first=7_000 * round_),
            round_=round_,
            plan=digest(PLAN.to_bytes()),
        )
        few = packed(
            bit_batch(500, first=100_000 + 500 * round_),
            round_=round_,
            plan=digest(PLAN.to_bytes()),
        )
        receipts += [
            intake.admit(Sent(b"one", made)),
            intake.admit(Sent(b"one", few)),
            intake.admit(Sent(b"other", few)),
        ]
    codes = [(wire.Code.Name(one.code), one.accepted) for one in receipts]
    assert codes[:3] == [("OK", 7_000), ("OK", 500), ("DUPLICATE", 0)]
    assert codes[3:6] == [("SURPLUS", 0), ("SURPLUS", 0), ("OK", 500)]
    assert intake.counted == {b"one": 7_500, b"other": 1_000}


@pytest.mark.parametrize(
    ("n", "count", "code"),
    [
        (3_000, 2_000_000_000, "OUT_OF_ALPHABET"),
        (1_000_000_000, 500, "OUT_OF_ALPHABET"),
        (7_501, 500, "OUT_OF_ALPHABET"),
        (3_000, 3_000 + REACH + 1, "OUT_OF_ALPHABET"),
        (3_000, -REACH - 1, "OUT_OF_ALPHABET"),
        (3_000, 3_000 + REACH, "OK"),
        (7_500, -REACH, "OK"),
    ],
)
def test_a_noised_count_is_one_that_noise_can_give(n: int, count: int, code: str) -> None:
    """Of no more records than the plan lets one owner have, and within eight standard deviations of
    what can be counted: an honest count is refused with probability below 3e-14."""
    intake = Admission(NOISED)
    intake.open(CountQuery(0.5, central(NOISED).noise_variance), 0)
    assert wire.Code.Name(intake.admit(Sent(b"one", counts(NOISED, n, count))).code) == code


def test_an_owner_cannot_count_more_than_it_declares_over_the_network(place: Place) -> None:
    """A running server refuses a count of two thousand million of 3,000 records, and more records
    than the owner was enrolled with by `owner add --records`; nothing of it is stored."""
    plan = plan_now(NOISED)
    campaign = place.campaign(plan)
    code, token = aggregator("owner", "add", "one", "--records", 2_500, "--db", place.url)
    assert code == 0
    assert aggregator("owner", "list", "--db", place.url) == (
        0,
        "enrolled  one  (at most 2500 records)\n",
    )
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    hand = Wire(server, campaign, token.strip())
    eventually(lambda: hand.submit(b"") == "WRONG_VERSION")
    for lie in (
        counts(plan, 2_000, 2_000_000_000),
        counts(plan, 2_501, 2_400),
        counts(plan, 10**9, 5),
    ):
        assert hand.receipt(lie) == ("OUT_OF_ALPHABET", 0, 0)
    assert views.stored_batches(place.store.engine, campaign) == 0
    assert hand.receipt(counts(plan, 2_500, 2_400)) == ("OK", 1, 0)


def test_who_changes_its_number_of_records_is_not_counted() -> None:
    """An owner that declares few records first and many later cannot count more than it declared:
    that count is left out."""

    def threshold(later: tuple[int, int]) -> float:
        procedure = owner_noised(central(NOISED), alpha=NOISED.alpha)
        next(procedure)
        tally = CountTally({b"honest": (3_000, 2_000), b"one": (100, 50)})
        try:
            while True:
                procedure.send(tally)
                tally = CountTally({b"honest": (3_000, 2_000), b"one": later})
        except StopIteration as finished:
            return float(finished.value.threshold)

    assert threshold((7_000, 7_000)) == threshold((100, 0)) == 1.0
    assert threshold((100, 7_000)) < 1.0


@pytest.mark.parametrize("records", [0, -1, 10**13])
def test_an_impossible_number_of_records_is_refused(records: int, place: Place) -> None:
    """Exit code 2, and nobody is enrolled."""
    assert aggregator("owner", "add", "one", "--records", records, "--db", place.url)[0] == 2
    assert aggregator("owner", "list", "--db", place.url) == (0, "")
