"""A monitor over a real server: fresh records answer, and a fall of coverage is an alarm."""

import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from confide.aggregator.campaigns.planning.watched_card import calibration_card
from confide.aggregator.keys import SIGNING_KEY
from confide.client.records.records import Records
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import headline
from confide.protocol.errors import BadInput
from confide.protocol.plan import Plan
from confide.protocol.prediction.predictor import Predictor
from tests.support.cards.cards import KEY, campaign
from tests.support.owners.owners import NOW, POLICY, owner, records, scored
from tests.support.servers.operating import said
from tests.support.servers.servers import (
    Place,
    Running,
    aggregator,
    contribution,
    eventually,
    page_port,
    plan_now,
)

VALID = timedelta(days=1)
WATCHED = replace(POLICY, methods=frozenset({"monitor"}))


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The card of a calibration by bits, signed by the key of the tests' servers."""
    folder = tmp_path_factory.mktemp("card")
    path = folder / "card.json"
    path.write_text(campaign(folder).to_json())
    return path


def fallen(held: Records) -> Records:
    """The same records with labels that the model does not expect."""
    return replace(held, truth=scored(held).argmin(axis=1))


def both(first: Records, second: Records) -> Records:
    return Records(
        (*first.names, *second.names),
        np.concatenate([scored(first), scored(second)]),
        np.concatenate([first.truth, second.truth]),
        first.model,
    )


def created(place: Place, *options: object) -> str:
    code, printed = aggregator(
        *("campaign", "create", "--key", place.keys / SIGNING_KEY, "--db", place.url), *options
    )
    assert code == 0, printed
    return printed.strip()


def take_part(
    server: Running, campaign: str, round_: int, *, token: str, held: Records, folder: Path
) -> int:
    """The reports that a round holds, once this owner's answer is among them."""
    store = server.place.store
    respondent = owner(folder, policy=WATCHED, now=lambda: datetime.now(UTC), held=held)
    respondent.admit(new=True)
    part = contribution(
        server.access(token),
        store.campaign(campaign).plan,
        folder,
        seed=0,
        n=0,
        policy=WATCHED,
        respondent=respondent,
    )

    def held_reports() -> int:
        # The server may not know of a new round yet, and then asks for that before it.
        part.once()
        return store.turnout(campaign, round_).reports

    return int(eventually(held_reports))


def test_fresh_records_answer_until_a_fall_is_an_alarm(
    place: Place, card: Path, tmp_path: Path
) -> None:
    """Records that have answered do not answer again; the alarm is on page, metrics and card."""
    name = created(place, "--monitors", card, "--records", "9000", "--owners", "1")
    place.store.open(name, now=datetime.now(UTC).timestamp())
    server, token, folder = place.serve("--http", "0"), place.enrol("owner"), tmp_path / "owner"
    good, bad = records(1_500, seed=1), fallen(records(900, seed=2))
    for number, (held, fresh) in enumerate([(good, 1_500), (both(good, bad), 900)]):
        found = take_part(server, name, number, token=token, held=held, folder=folder)
        assert found == fresh
    eventually(lambda: place.store.card(name, PUBLIC))
    card_found = parse_card(place.store.card(name, PUBLIC) or "")
    assert [finding.clause for finding in verify(card_found) if not finding.holds] == []
    assert [one["n"] for one in card_found.formal["certificate"]["rounds"]] == [1_500, 900]
    assert headline(card_found).startswith(("ALARM", "SIMULATION"))
    assert card_found.formal["watched"]["card"] == parse_card(card.read_text()).digest.hex()
    with pytest.raises(BadInput, match="is of a monitor"):
        Predictor.from_card(card_found, key=KEY.public_key().public_bytes_raw(), simulation=True)
    alarm = tmp_path / "alarm.json"
    alarm.write_text(card_found.to_json())
    watched = f"the card that it watched, {card_found.formal['watched']['card']}"
    with pytest.raises(BadInput, match=watched):
        calibration_card(alarm, key=KEY.public_key().public_bytes_raw())
    address = f"http://127.0.0.1:{page_port(server)}"
    for path, text in (("/metrics", f'confide_alarm{{campaign="{name}"}} 1.0'), ("", "ALARM")):
        where = f"{address}{path or '/campaigns/' + name}"
        with urllib.request.urlopen(where) as page:
            assert text in page.read().decode()


def test_a_recalibration_repeats_the_plan_of_the_card(place: Place, card: Path) -> None:
    """Everything but title and time; other settings are refused."""
    again = place.store.campaign(created(place, "--recalibrates", card, "--title", "second")).plan
    first = parse_card(card.read_text()).formal
    assert again.to_bytes().hex() != first["plan"]
    assert again.campaign == "second"
    changed = {"campaign": first["contract"]["name"], "issued": NOW, "expires": NOW + VALID}
    old = Plan.from_bytes(bytes.fromhex(first["plan"]))
    assert replace(again, **changed) == replace(old, **changed)
    given = ("--recalibrates", card, "--epsilon", "1")
    code, error = said("campaign", "create", "--key", place.keys / SIGNING_KEY, *given)
    assert code == 2
    assert "epsilon is given beside recalibrates" in error


def test_what_cannot_be_watched_is_refused(place: Place, card: Path, tmp_path: Path) -> None:
    """A changed card, one that guarantees less, a score beside a card, a monitor without a card, a
    card with a threshold for each label."""
    key = ("campaign", "create", "--key", place.keys / SIGNING_KEY, "--db", place.url)
    changed = tmp_path / "changed.json"
    changed.write_text(card.read_text().replace('"coverage": 0.9,', '"coverage": 0.8,', 1))
    classes = tmp_path / "classes.json"
    each = campaign(tmp_path / "each", method="labels", variant="class-conditional")
    classes.write_text(each.to_json())
    loose = tmp_path / "loose.json"
    loose.write_text(campaign(tmp_path / "less", method="labels", variant="published").to_json())
    for options, text in (
        (("--monitors", classes, "--records", "9"), "a threshold for each of 5 parts (by class)"),
        (("--monitors", loose, "--records", "9"), "guarantees no coverage of 0.9 (coverage does"),
        (("--monitors", changed, "--records", "9"), "does not verify"),
        (("--monitors", card, "--records", "9", "--score", "aps"), "score is given beside"),
        (
            (
                *("--campaign", "monitor:e-process", "--labels", "5", "--records", "9"),
                *("--model", "00" * 32),
            ),
            "monitors is not given",
        ),
    ):
        code, error = said(*key, *options)
        assert (code, error.count("\n")) == (2, 1), error
        assert text in error
    assert not place.store.campaigns()


def test_a_policy_without_monitors_refuses_one(place: Place, card: Path, tmp_path: Path) -> None:
    """The clause `methods` of the owner's policy names it like any other."""
    name = created(place, "--monitors", card, "--records", "9000")
    plan = plan_now(place.store.campaign(name).plan)
    assert POLICY.refusals(plan)
    assert not WATCHED.refusals(plan)
