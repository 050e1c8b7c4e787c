"""How many owners a result must come from, and how much of it may come from one."""

import math
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.admission import Admission, Sent
from confide.aggregator.campaigns.driver import TooFewOwners, run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.central import owner_noised
from confide.aggregator.storage import views
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.methods.base import Batch
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.central import DEVIATIONS, CountQuery, CountTally
from confide.protocol.plan import Plan, digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION
from tests.support.answers import answer as packed
from tests.support.answers import bit_batch, counts, owner_counts
from tests.support.central import NOISED, OPEN_POLICY, TRUSTED
from tests.support.hostile import Wire
from tests.support.owners import (
    KEY,
    NOW,
    PLAN,
    POLICY,
    asking,
    central,
    changed,
    channel_of,
    owner,
    signed,
)
from tests.support.servers import Place, aggregator, contribution, eventually, plan_now, together

# How far noise may carry a count.
REACH = math.isqrt(DEVIATIONS**2 * central(NOISED).noise_variance)
DECLINED = wire.Answer(version=VERSION, code=wire.Code.METHOD_NOT_ALLOWED).SerializeToString()


@pytest.mark.parametrize("end", ["close", "owners", "expiry"])
def test_too_few_contributors_give_no_card(end: str, place: Place, tmp_path: Path) -> None:
    """One owner sends, two decline, and the plan asks for three: however the campaign ends, it
    fails and says why."""
    plan = plan_now(variant="one-shot", minimum_owners=3)
    if end == "expiry":
        plan = changed(
            plan, expires=datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=25)
        )
    campaign = place.campaign(
        plan, owners=3 if end == "owners" else 0, round_seconds=1.0, enough=10
    )
    tokens = [place.enrol(f"owner {i}") for i in range(3)]
    server = place.serve("--http", "0")
    eventually(lambda: place.store.rounds(campaign))
    part = contribution(server.access(tokens[0]), plan, tmp_path / "one", seed=1, n=2_000)
    eventually(lambda: part.once().reports == 2_000)
    # More than enough reports, and the round is over: it waits for the others.
    for token in tokens[1:]:
        assert place.store.rounds(campaign)[0].closed is None
        assert Wire(server, campaign, token).announced(DECLINED) == "METHOD_NOT_ALLOWED"
    page = next(event["address"] for event in server.events() if event["event"] == "page")
    metrics = urllib.request.urlopen(f"{page}metrics", timeout=30).read().decode()
    assert f'confide_owners_contributed{{campaign="{campaign}"}} 1.0' in metrics
    assert f'confide_owners_minimum{{campaign="{campaign}"}} 3.0' in metrics
    if end == "close":
        assert aggregator("campaign", "close", campaign, "--db", place.url)[0] == 0
    eventually(lambda: place.store.campaign(campaign).reason)
    reason = place.store.campaign(campaign).reason or ""
    assert reason == "answers of 1 owners were counted, the plan asks for at least 3"
    assert place.store.campaign(campaign).state == "closed"
    assert place.store.card(campaign, PUBLIC) is None
    assert aggregator("campaign", "publish", campaign, "--db", place.url)[0] == 2
    assert not [event for event in server.events() if event["level"] == "error"]


def test_nothing_is_released_of_too_few(place: Place) -> None:
    """Exact counts of one owner where the plan asks for two: no release is drawn, so no budget is
    spent on it."""
    plan = plan_now(TRUSTED, minimum_owners=2)
    campaign, tokens = (
        place.campaign(plan, owners=2),
        [place.enrol(name) for name in ("north", "south")],
    )
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    north, south = (Wire(server, campaign, token) for token in tokens)
    assert north.announced(owner_counts(plan, 3_000)) == "OK"
    # An owner without records answers, and contributes nothing.
    assert south.announced(owner_counts(plan, 0)) == "OK"
    eventually(lambda: place.store.campaign(campaign).reason)
    assert "of 1 owners" in (place.store.campaign(campaign).reason or "")
    assert place.store.release(campaign) is None


@pytest.mark.parametrize("plan", [PLAN, TRUSTED, NOISED], ids=["bits", "trusted", "noised"])
def test_the_floor_holds_over_flower(plan: Plan, tmp_path: Path) -> None:
    """Two of three nodes decline: what drives a campaign over Flower raises, and with a floor of
    one there is a card that says how many contributed, what the largest did and what its lie would
    mean; the verifier accepts it."""

    def made(policies: list[Any]) -> list[Any]:
        return [
            owner(tmp_path / f"{len(policies)}{i}", seed=i, n=2_000, policy=one)
            for i, one in enumerate(policies)
        ]

    refusing = replace(POLICY, methods=frozenset({"training"}))
    strict = changed(plan, minimum_owners=3, minimum_reports=0)
    with pytest.raises(TooFewOwners, match=r"of 1 owners .* at least 3"):
        run_campaign(strict, asking(signed(strict), made([OPEN_POLICY, refusing, refusing])))
    lenient = changed(plan, minimum_owners=1)
    outcome = run_campaign(lenient, asking(signed(lenient), made([OPEN_POLICY, OPEN_POLICY])))
    card = campaign_card(lenient, outcome, diagnostic={}, issued=NOW).sign(KEY)
    said = card.provenance["contributors"]
    n = outcome.certificate.n
    assert (said["owners"], said["minimum_owners"], said["of"]) == (2, 1, n)
    assert n / 2 <= said["largest"] < n
    unit = "records" if plan.method == "central" else "reports"
    assert said["if_the_largest_lied"] == (
        f"if the largest contributor ({said['largest']} of {n} {unit}) lied, nothing is guaranteed"
    )
    assert all(finding.holds for finding in verify(parse_card(card.to_json())))


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


def test_the_floor_is_signed_and_on_the_card(place: Place, tmp_path: Path) -> None:
    """What `campaign create` is told stands in the plan that owners get, and on the card, with who
    contributed."""
    code, said = aggregator(
        "campaign",
        "create",
        "--key",
        place.keys / "aggregator.key",
        "--db",
        place.url,
        "--campaign",
        "bits:one-shot",
        "--labels",
        5,
        "--model",
        "00" * 32,
        "--records",
        6_000,
        "--epsilon",
        4,
        "--minimum-owners",
        3,
        "--owners",
        3,
    )
    assert code == 0
    campaign = place.store.campaign(said.strip())
    assert campaign.plan.minimum_owners == 3
    assert digest(campaign.plan.to_bytes()) == campaign.digest
    assert aggregator("campaign", "open", campaign.id, "--db", place.url)[0] == 0
    server, tokens = place.serve(), [place.enrol(f"owner {i}") for i in range(3)]
    eventually(lambda: place.store.rounds(campaign.id))

    def take_part(i: int) -> Any:
        return contribution(
            server.access(tokens[i]), campaign.plan, tmp_path / str(i), seed=i, n=2_000
        ).watch()

    together(3, take_part)
    eventually(lambda: place.store.campaign(campaign.id).state == "calibrated")
    card = parse_card(place.store.card(campaign.id, PUBLIC) or "")
    assert card.provenance["contributors"] | {"if_the_largest_lied": ""} == {
        "owners": 3,
        "minimum_owners": 3,
        "largest": 2_000,
        "of": 6_000,
        "if_the_largest_lied": "",
    }
    assert all(finding.holds for finding in verify(card))


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
