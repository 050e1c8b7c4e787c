"""A campaign's card is signed by the key that signed its plan, or there is none."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.storage.stored_campaign import Settings
from confide.client.transport.contribution import Contribution
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.plan import sign_plan
from tests.support.owners.owners import KEY, NOW, asking, owner, signed
from tests.support.owners.owners import PUBLIC as PUBLIC_KEY
from tests.support.repository.places import ROOT
from tests.support.servers.servers import Place, aggregator, contribution, eventually, plan_now

OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER_KEY = OTHER.public_key().public_bytes_raw()
PLAN = plan_now(variant="one-shot")


def sent(part: Contribution) -> bool:
    return part.once().reports == 2_000


def start(place: Place, key: Ed25519PrivateKey) -> subprocess.CompletedProcess[str]:
    """A server with this key, that is expected to end by itself."""
    file = place.folder / "other.key"
    file.write_bytes(key.private_bytes_raw())
    command = [
        "-m",
        "confide.aggregator.cli.server",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--insecure-loopback",
        "--db",
        place.url,
        "--key",
    ]
    return subprocess.run(
        [sys.executable, *command, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
    )


def test_a_server_with_another_key_does_not_start(place: Place, tmp_path: Path) -> None:
    """Over a campaign that is a draft, open or closed without a card: exit code 2 and both keys.
    With the card there it may."""
    made = place.store.create(sign_plan(PLAN, KEY), Settings(), now=time.time())
    server = None
    for state in ("draft", "open", "closed"):
        assert place.store.campaign(made.id).state == state
        refused = start(place, OTHER)
        assert refused.returncode == 2, refused.stderr
        assert (
            f"{state} and its plan is signed by {PUBLIC_KEY.hex()}; the key given is "
            f"{OTHER_KEY.hex()}" in refused.stderr
        )
        assert "listening" not in refused.stderr
        if state == "draft":
            place.store.open(made.id, now=time.time())
        if state == "open":
            server = place.serve()
            part = contribution(
                server.access(place.enrol("owner")), PLAN, tmp_path / "owner", seed=1, n=2_000
            )
            eventually(partial(sent, part))
            server.kill()
            place.store.close(made.id, now=time.time())
    server = place.serve()
    eventually(lambda: place.store.campaign(made.id).state == "calibrated")
    assert parse_card(place.store.card(made.id, PUBLIC) or "").key == PUBLIC_KEY
    server.kill()
    (place.keys / "aggregator.key").write_bytes(OTHER.private_bytes_raw())
    place.serve()


def test_a_campaign_of_another_key_is_left_to_a_server_with_that_key(place: Place) -> None:
    """Created while the server runs: no question is asked, so nobody spends; the log names both
    keys, others go on."""
    server = place.serve()
    foreign = place.store.create(sign_plan(PLAN, OTHER), Settings(), now=time.time()).id
    place.store.open(foreign, now=time.time())
    own = place.campaign(plan_now(variant="one-shot", campaign="own"))
    eventually(lambda: place.store.rounds(own))

    def named() -> list[tuple[str, str]]:
        return [
            (event["signed_by"], event["key"])
            for event in server.events()
            if event.get("campaign") == foreign
        ]

    assert eventually(named) == [(OTHER_KEY.hex(), PUBLIC_KEY.hex())]
    assert place.store.rounds(foreign) == []


def test_a_card_of_another_key_is_not_published(place: Place, tmp_path: Path) -> None:
    """As one was stored by an earlier version: `campaign publish` names both keys, and nobody can
    fetch the card."""
    campaign = place.campaign(PLAN)
    outcome = run_campaign(PLAN, asking(signed(PLAN), [owner(tmp_path / "owner", n=2_000)]))
    card = campaign_card(PLAN, outcome, diagnostic={}, issued=NOW)
    place.store.calibrate(campaign, {PUBLIC: card.sign(OTHER).to_json()}, now=time.time())
    assert aggregator("campaign", "publish", campaign, "--db", place.url)[0] == 2
    assert place.store.campaign(campaign).state == "calibrated"
