"""How many owners a result must come from."""

import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from confide.aggregator.campaigns.driver import TooFewOwners, run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.plan import Plan, digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION
from tests.support.cards.central import NOISED, OPEN_POLICY, TRUSTED
from tests.support.owners.answers import owner_counts
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import KEY, NOW, PLAN, POLICY, asking, changed, owner, signed
from tests.support.servers.servers import (
    Place,
    aggregator,
    contribution,
    eventually,
    plan_now,
    together,
)

DECLINED = {
    name: wire.Answer(version=VERSION, code=name).SerializeToString()
    for name in ("METHOD_NOT_ALLOWED", "GROUP_TOO_SMALL")
}


@pytest.mark.parametrize("end", ["close", "owners", "expiry"])
def test_too_few_contributors_give_no_card(end: str, place: Place, tmp_path: Path) -> None:
    """One owner sends, two decline, and the plan asks for three: however the campaign ends, it
    fails and says why. The page says how many were left out for too few records."""
    server, plan = place.serve("--http", "0"), plan_now(variant="one-shot", minimum_owners=3)
    if end == "expiry":
        plan = changed(
            plan, expires=datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=15)
        )
    campaign = place.campaign(
        plan, owners=3 if end == "owners" else 0, round_seconds=1.0, enough=10
    )
    tokens = [place.enrol(f"owner {i}") for i in range(3)]
    eventually(lambda: place.store.rounds(campaign))
    part = contribution(server.access(tokens[0]), plan, tmp_path / "one", seed=1, n=2_000)
    eventually(lambda: part.once().reports == 2_000)
    # More than enough reports, and the round is over: it waits for the others.
    for token, (code, declined) in zip(tokens[1:], DECLINED.items(), strict=True):
        assert place.store.rounds(campaign)[0].closed is None
        assert Wire(server, campaign, token).announced(declined) == code
    page = next(event["address"] for event in server.events() if event["event"] == "page")
    metrics = urllib.request.urlopen(f"{page}metrics", timeout=30).read().decode()
    shown = urllib.request.urlopen(f"{page}campaigns/{campaign}", timeout=30).read().decode()
    assert "1 left out: too few records in the slice" in shown
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
        "rounds": [{"expected": 6_000, "reports": 6_000, "owners": 3, "too_few": 0}],
    }
    assert all(finding.holds for finding in verify(card))
