"""`confide-shuffler` as its operator types it, and a campaign of several rounds behind it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from confide.aggregator.storage.stored_campaign import CALIBRATED, PUBLISHED
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.plan import Plan
from confide.shuffler.cli import app
from tests.support.owners.owners import PLAN
from tests.support.servers.servers import Place, aggregator, eventually, together
from tests.support.servers.shufflers import ShufflerPlace, collected, sealed_contribution


def shuffle(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def test_a_plan_names_the_shuffler_that_init_made(place: Place, tmp_path: Path) -> None:
    """`init` writes shuffler.json, from which `campaign create` makes a plan; a file that is none,
    a crowd without one, and labels are refused, and nothing is stored."""
    keys = tmp_path / "shuffler"
    assert shuffle("init", keys)[0] == 0
    before = (keys / "shuffler.json").read_text()
    assert "kept" in shuffle("init", keys)[1]
    assert (keys / "shuffler.json").read_text() == before
    usual = {
        "key": place.keys / "aggregator.key",
        "db": place.url,
        "campaign": "bits:one-shot",
        "labels": 5,
        "model": PLAN.model.hex(),
        "records": 2_000,
        "epsilon": 2,
        "score": "hps",
    }

    def create(**more: object) -> int:
        options = [word for name, value in (usual | more).items() for word in (f"--{name}", value)]
        return aggregator("campaign", "create", *options)[0]

    assert create(crowd=500) == 2
    assert create(shuffler=keys / "server.pem", crowd=500) == 2
    assert create(shuffler=keys / "shuffler.json", campaign="labels:certified") == 2
    assert place.store.campaigns() == []
    assert create(shuffler=keys / "shuffler.json", crowd=500) == 0
    (made,) = place.store.campaigns()
    plan: Plan = made.plan
    assert plan.shuffling is not None
    named = json.loads(before)
    assert (plan.shuffling.key.hex(), plan.shuffling.authority.hex(), plan.shuffling.crowd) == (
        named["key"],
        named["authority"],
        500,
    )


@pytest.mark.parametrize("insecure", [False, True])
def test_a_shuffler_serves_its_own_campaigns_over_tls_only(
    insecure: bool, place: Place, shuffler: ShufflerPlace
) -> None:
    """A campaign whose plan names another shuffler, or none, is refused with exit code 2, and so is
    a shuffler without a certificate that owners could know it by."""
    campaign = place.campaign(PLAN)
    words: list[object] = ["--insecure-loopback"] if insecure else []
    if not insecure:
        words = ["--tls-cert", shuffler.keys / "server.pem"]
        words += ["--tls-key", shuffler.keys / "server.key"]
    given = {
        "key": shuffler.keys / "shuffler.key",
        "db": shuffler.url,
        "campaign": campaign,
        "aggregator": f"127.0.0.1:{place.serve().port}",
        "token-file": shuffler.token,
        "ca": place.keys / "ca.pem",
        "listen": "127.0.0.1:0",
    }
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    code, said = shuffle("serve", *options, *words)
    assert code == 2, said
    assert shuffler.store.campaigns() == []


def test_a_campaign_of_several_rounds_ends_in_a_card_that_owners_fetch_there(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """Certified bits ask eight rounds; each is mixed by itself, the smallest is the crowd, and the
    published card comes to owners through the shuffler. `purge` deletes what is left; how much
    came stays."""
    plan = shuffler.plan(crowd=20, expected_records=1_500, minimum_owners=3)
    campaign = place.campaign(plan)
    running = shuffler.relay(place.serve().port, campaign, owners=3)

    def answers(i: int) -> bool:
        folder = tmp_path / f"owner-{i}"
        made = sealed_contribution(shuffler, running, plan, folder, seed=i + 1, n=500)
        return made.watch().well

    assert together(3, answers) == [True] * 3
    eventually(lambda: place.store.campaign(campaign).state == CALIBRATED, what="calibrated")
    card = parse_card(place.store.card(campaign, PUBLIC) or "")
    assert [one.clause for one in verify(card) if not one.holds] == []
    rounds = card.formal["shuffle"]["rounds"]
    assert len(rounds) == len(place.store.rounds(campaign)) > 3
    assert card.formal["shuffle"]["n"] == min(one["opened"] for one in rounds)
    assert sum(one["opened"] for one in rounds) == card.formal["certificate"]["n"]
    assert aggregator("campaign", "publish", campaign, "--db", place.url)[0] == 0
    eventually(lambda: shuffler.store.campaign(campaign).state == PUBLISHED, what="published")
    assert shuffler.store.card(campaign, PUBLIC) == place.store.card(campaign, PUBLIC)
    code, said = shuffle("status", "--db", shuffler.url)
    assert code == 0
    assert said.count("reports handed over, and held by the aggregator") == len(rounds)
    shown = json.loads(shuffle("status", "--db", shuffler.url, "--json")[1])
    assert [row["handed_over"] for row in shown[0]["rounds"]] == [one["reports"] for one in rounds]
    kept = sum(shuffler.store.batches(campaign, number) for number in range(len(rounds)))
    purge = ("purge", campaign, "--db", shuffler.url)
    assert shuffle(*purge) == (0, f"{kept} batches deleted\n")
    assert shuffle(*purge) == (0, "0 batches deleted\n")
    assert json.loads(shuffle("status", "--db", shuffler.url, "--json")[1]) == shown


def test_what_is_still_to_be_handed_over_is_not_purged(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """`purge` of a campaign that is open is exit code 2, and deletes nothing; so is one of an id
    that nobody has."""
    plan = shuffler.plan(crowd=300, variant="one-shot")
    campaign = collected(shuffler, place, plan, tmp_path / "owner", reports=300)
    kept = shuffler.store.batches(campaign, 0)
    assert kept > 0
    assert shuffle("purge", campaign, "--db", shuffler.url)[0] == 2
    assert shuffle("purge", "ff" * 8, "--db", shuffler.url)[0] == 2
    assert shuffler.store.batches(campaign, 0) == kept
