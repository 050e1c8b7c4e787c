"""What a campaign's card says of its contributors, and how its decision is shown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign
from confide.protocol.cards.card import Card
from confide.protocol.cards.page import as_html, as_markdown
from confide.protocol.cards.verify.card import verify
from confide.protocol.plan import round_of
from tests.support.cards.campaign_cards import counted, forged, issued, reported
from tests.support.cards.cards import KEY, broken, campaign, command, make_card
from tests.support.cards.central import NOISED, TRUSTED
from tests.support.owners.owners import PLAN, changed, owner, signed


@pytest.fixture(scope="module")
def tracks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    """An honest card of every kind of campaign."""
    folder = tmp_path_factory.mktemp("cards")
    rng = np.random.default_rng(5)
    return {
        "bits": campaign(folder / "bits"),
        "labels": campaign(folder / "labels", method="labels", variant="certified", max_corrupt=3),
        "published labels": campaign(
            folder / "published", method="labels", variant="published-star", max_corrupt=3
        ),
        "trusted": issued(TRUSTED, counted(TRUSTED, rng)),
        "owner-noised": issued(NOISED, counted(NOISED, rng)),
    }


def silent(card: Card) -> Card:
    """The card without a word of contributors, signed again by its own issuer."""
    kept = {name: value for name, value in card.provenance.items() if name != "contributors"}
    return replace(card, provenance=kept).sign(KEY)


@pytest.mark.parametrize("track", ["bits", "labels", "published labels", "trusted", "owner-noised"])
def test_who_contributed_is_held_to_the_plan_and_to_n(track: str, tracks: dict[str, Card]) -> None:
    """A floor that the plan does not have or that was not reached, numbers that do not add up to
    the card's n, a sentence that takes the largest contributor's lie for harmless, and no word of
    contributors at all: each is named."""
    card = tracks[track]
    assert broken(card) == []
    honest = card.provenance["contributors"]
    largest, n, sentence = honest["largest"], honest["of"], honest["if_the_largest_lied"]
    lies: list[tuple[str, Any]] = [
        ("minimum_owners", 1),
        ("owners", 0),
        ("owners", 1),
        ("owners", n + 1),
        ("largest", 0),
        ("largest", n + 1),
        ("largest", n // honest["owners"] - 1),
        ("largest", largest + 1),
        ("of", n + 1),
        ("of", n - 1),
        (
            "if_the_largest_lied",
            sentence.replace("nothing is guaranteed", "the certificate holds"),
        ),
        ("if_the_largest_lied", ""),
    ]
    for name, value in lies:
        told = card.provenance | {"contributors": honest | {name: value}}
        found = broken(replace(card, provenance=told).sign(KEY))
        clauses = [clause for clause in found if clause.startswith("provenance/contributors/")]
        assert clauses, (name, value)
    assert broken(silent(card)) == ["provenance/contributors"]
    # Nor does a card of rounds leave them all out, with what they are compared with.
    unsaid = {name: value for name, value in honest.items() if name != "rounds"}
    told = card.provenance | {"contributors": unsaid}
    rounds = ["provenance/contributors/rounds"] if "rounds" in honest else []
    assert broken(replace(card, provenance=told).sign(KEY)) == rounds
    assert bool(rounds) == (track not in ("trusted", "owner-noised"))


def test_a_card_below_its_floor_fails(tracks: dict[str, Card]) -> None:
    """A plan that asks for three owners, and a card of two, however feasible."""
    asked = changed(TRUSTED, minimum_owners=3)
    assert not broken(issued(asked, counted(asked, np.random.default_rng(1), owners=3)))
    low = issued(asked, counted(asked, np.random.default_rng(1), owners=2))
    assert broken(low) == ["provenance/contributors/owners"]
    fewer = forged(tracks["trusted"], (("searched", 0, "owners"), 1))
    assert broken(fewer) == ["searched/0/owners"]
    stray = make_card()
    told = stray.provenance | {"contributors": tracks["trusted"].provenance["contributors"]}
    assert broken(replace(stray, provenance=told).sign(KEY)) == ["provenance/contributors"]


@pytest.mark.parametrize("after", [1, 4])
def test_a_campaign_that_was_closed_has_a_card_that_verifies(tmp_path: Path, after: int) -> None:
    """Its last stages are decided without answers, and the server has no rounds of them."""
    plan, owners = changed(PLAN), [owner(tmp_path / str(i), seed=i) for i in range(3)]
    name = signed(plan)

    def ask(query: bytes) -> list[Sent]:
        there = enumerate(owners) if round_of(query) < after else ()
        return [Sent(bytes([i]), one.answer(name, query)) for i, one in there]

    outcome = run_campaign(plan, ask)
    outcome = replace(outcome, rounds=outcome.rounds[:after])
    card = issued(plan, outcome)
    assert (card.formal["released"]["threshold"] == 1) == (after == 1)
    assert broken(card) == []


def test_a_plan_of_another_kind_is_no_plan_of_a_card(tracks: dict[str, Card]) -> None:
    """It fails by name, whether the card speaks of contributors or not."""
    for track, other in (("bits", TRUSTED), ("trusted", PLAN)):
        for card in (tracks[track], silent(tracks[track])):
            lie = forged(card, (("plan",), other.to_bytes().hex()))
            assert "plan/track" in broken(lie)


def test_what_the_largest_contributor_could_do_stands_with_the_decision(
    tmp_path: Path, tracks: dict[str, Card]
) -> None:
    """Whoever reads no more than `verify` prints reads that one owner's lie undoes the guarantee,
    or that it does not."""
    path = tmp_path / "card.json"
    plan = changed(PLAN, max_corrupt=3)
    outcome = reported(plan, np.random.default_rng(1), n=6_000)
    spread = issued(plan, replace(outcome, contributors=2_000, largest=3))
    for card, status, left in (
        (tracks["trusted"], "GUARANTEED ON AVERAGE", "nothing is guaranteed"),
        (spread, "CERTIFIED", "the certificate holds"),
    ):
        path.write_text(card.to_json())
        said = command("verify", path)
        assert (said.exit_code, said.stdout.startswith(status)) == (0, True)
        line = said.stdout.splitlines()[0]
        assert "; if the largest contributor (" in line
        assert left in line


def test_a_card_cannot_write_its_own_verdict(tmp_path: Path, tracks: dict[str, Card]) -> None:
    """A name that moves the cursor over FAILS and writes `holds` stays text, on a line of its own,
    also where the card cannot be read; and a card that does not verify is never shown as feasible
    without a word of that."""
    honest, lie, strange = (tmp_path / f"{name}.json" for name in ("honest", "lie", "strange"))
    card = tracks["bits"]
    name = "\x1b[1A\x1b[2Kholds: 70 clauses recomputed, signed by you\nFEASIBLE\x1b[8m"
    bad = forged(card, (("contract", "name"), name))
    honest.write_text(card.to_json())
    lie.write_text(bad.to_json())
    received = card.provenance | {"received": {name: -1}}
    strange.write_text(replace(card, provenance=received).to_json())
    for arguments, code in (
        (("verify", lie), 1),
        (("diff", honest, lie), 1),
        (("verify", strange), 2),
        (("show", strange), 2),
    ):
        result = command(*arguments)
        assert (result.exit_code, result.output.count("\n")) == (code, 1), arguments
        assert "\x1b" not in result.output, arguments
    said = "DOES NOT VERIFY (contract/name). What it says: CERTIFIED"
    findings = verify(bad)
    assert f"**{said}" in as_markdown(bad, findings)
    page = as_html(bad, findings)
    assert '<p class="status">DOES NOT VERIFY</p>' in page
    assert '<p class="decision">Contract/name. What it says: CERTIFIED' in page
    assert said in command("show", lie).stdout
    assert "**CERTIFIED" in command("show", honest).stdout


def test_without_a_key_to_compare_with_a_reader_is_told_what_that_leaves_open(
    tmp_path: Path,
) -> None:
    """Whoever changes a card can sign it again."""
    path, mine = tmp_path / "card.json", KEY.public_key().public_bytes_raw().hex()
    path.write_text(make_card().to_json())
    named, anyone = command("verify", path, "--key", mine), command("verify", path)
    assert (named.exit_code, "anybody" in named.stdout) == (0, False)
    assert anyone.exit_code == 0
    assert "Not compared with any key: anybody may have changed this card" in anyone.stdout
