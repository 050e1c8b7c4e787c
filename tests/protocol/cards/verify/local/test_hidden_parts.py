"""Cards that leave out what speaks against them: a part, a failed stage, a rung of a ladder."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from confide.protocol.cards.card import Card, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.errors import BadInput
from confide.protocol.methods.labels.pairs import PairTerms
from tests.support.cards.campaign_cards import forged
from tests.support.cards.cards import KEY, broken, campaign, edited, edits
from tests.support.cards.group_cards import PLANS, group_card
from tests.support.cards.left_out import without_stage

PUBLIC = KEY.public_key().public_bytes_raw()
PAIRS = PairTerms(variant="class-conditional", epsilon=4.0, delta=0.1, channel="k-rr")
PARTS = ("certificate", "strata", "parts")
Changes = list[tuple[tuple[Any, ...], Any]]


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    folder = tmp_path_factory.mktemp("hidden")
    owners: dict[str, Any] = {"variant": "for-every-owner", "part_floor": 500}
    found = {
        "bits owners": campaign(folder / "bits", **owners),
        "labels owners": campaign(folder / "labels", method="labels", **owners),
        "one-shot": campaign(folder / "one", variant="one-shot"),
        "mixture": campaign(folder / "mixture", planned_mixture=True),
        "pairs": campaign(folder / "pairs", terms=PAIRS),
    }
    groups = ("bits:for-every-group", "bits:per-group")
    return found | {name: group_card(PLANS[name], folder / name[5:]) for name in groups}


def parts(card: Card) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = card.formal["certificate"]["strata"]["parts"]
    return found


def told(kept: list[dict[str, Any]], *, together: bool = True) -> Changes:
    """What a card says whose parts are these; with one threshold, those covered count."""
    shown = [one for one in kept if one.get("covered", True) or not together]
    top = max(one["threshold"] for one in shown)
    return [(PARTS, kept), (("certificate", "threshold"), top), (("released", "threshold"), top)]


def hardest(card: Card) -> int:
    covered = [one["threshold"] * one.get("covered", True) for one in parts(card)]
    return int(np.argmax(covered))


@pytest.mark.parametrize("method", ["bits owners", "labels owners"])
def test_an_owner_is_not_left_off_the_card(cards: dict[str, Card], method: str) -> None:
    """The owner that needs the highest threshold, be its reports gone or said to be another's."""
    card = cards[method]
    high = hardest(card)
    rest = [dict(one) for i, one in enumerate(parts(card)) if i != high]
    gone = broken(forged(card, *told(rest)), key=PUBLIC)
    assert "certificate/strata/n" in gone
    rest[0]["n"] += parts(card)[high]["n"]
    assert "certificate/strata/parts" in broken(forged(card, *told(rest)), key=PUBLIC)


def test_a_card_of_a_thousand_million_owners_is_refused_at_once(cards: dict[str, Card]) -> None:
    """Their names are not written down to be compared."""
    card = cards["labels owners"]
    contributors = card.provenance["contributors"] | {"owners": 10**9}
    lie = replace(card, provenance=card.provenance | {"contributors": contributors}).sign(KEY)
    (found,) = [one for one in verify(lie, key=PUBLIC) if one.clause == "certificate/strata/parts"]
    assert not found.holds
    assert len(found.detail) < 100


@pytest.mark.parametrize("kind", ["bits owners", "bits:for-every-group"])
@pytest.mark.parametrize("reason", ["left: it answered none of the reports of a stage", "too few"])
def test_who_answered_is_covered(cards: dict[str, Card], kind: str, reason: str) -> None:
    """A part that answered every round, and enough, is neither gone nor small."""
    card = cards[kind]
    high = hardest(card)
    hidden = parts(card)[high] | {"covered": False, "threshold": 1.0, "rungs": []}
    hidden["reason"] = reason
    rest = [hidden if i == high else one for i, one in enumerate(parts(card))]
    clause = "reason" if reason.startswith("left") else "covered"
    named = f"certificate/strata/parts/{high}/{clause}"
    assert named in broken(forged(card, *told(rest)), key=PUBLIC)
    # Nor is it after it is said to have answered nothing in the search, or in a stage.
    shifted = [*hidden["reports"]]
    stage = 3 if clause == "reason" else 0
    shifted[4], shifted[stage] = shifted[4] + shifted[stage], 0
    rest[high] = hidden | {"reports": shifted}
    assert "provenance/contributors/rounds/parts" in broken(forged(card, *told(rest)), key=PUBLIC)


def test_a_group_does_not_leave_out_a_stage_that_it_failed_after_one_that_passed(
    cards: dict[str, Card],
) -> None:
    """The threshold below would be tested twice, at the whole delta each time."""
    card = cards["bits:per-group"]
    found, part = card.formal["certificate"], parts(card)[0]
    assert [rung["level_after"] == 1 for rung in part["rungs"]] == [True, False, True]
    hidden = part | without_stage(found | part, 1)
    assert hidden["rungs"][1]["level"] == 0.1 > part["rungs"][2]["level"]
    own = ("released", "strata", "parts", 0, "threshold")
    kept = told([hidden, *parts(card)[1:]], together=False)
    lie = forged(card, *kept, (own, hidden["threshold"]))
    assert broken(lie, key=PUBLIC) == ["certificate/strata/parts/0/stages"]


def test_stages_of_a_group_count_what_it_answered(cards: dict[str, Card]) -> None:
    """The answers of a later stage do not stand in for those of one that failed."""
    card = cards["bits:per-group"]
    rungs = parts(card)[0]["rungs"]
    place = (*PARTS, 0, "rungs", 0)
    for n in (rungs[0]["n"] - 1, rungs[0]["n"] + 1):
        lie = forged(card, ((*place, "n"), n))
        assert "certificate/strata/parts/0/stages" in broken(lie, key=PUBLIC)


def test_a_stage_of_a_planned_mixture_draws_no_more_than_its_round(cards: dict[str, Card]) -> None:
    """Trials are answers of the round, each at most once."""
    card = cards["mixture"]
    rounds, rungs = card.provenance["contributors"]["rounds"], card.formal["certificate"]["rungs"]
    place = ("certificate", "rungs", 0)
    most = rounds[len(rounds) - len(rungs)]["reports"]
    for n, broken_by in ((most, False), (most + 1, True)):
        lie = forged(card, ((*place, "n"), n))
        assert ("provenance/contributors/rounds/stages" in broken(lie, key=PUBLIC)) == broken_by


def test_one_round_walks_down_every_rung_of_the_ladder(cards: dict[str, Card]) -> None:
    """A rung that failed, or was not tried, is not left out for one below it."""
    card = cards["one-shot"]
    rungs = card.formal["certificate"]["rungs"]
    assert len(rungs) > 2
    for kept in (rungs[1:], [*rungs[:1], *rungs[2:]]):
        lie = forged(card, (("certificate", "rungs"), kept))
        assert "certificate/ladder" in broken(lie, key=PUBLIC)


def test_a_label_does_not_leave_out_a_stage_of_pairs(cards: dict[str, Card]) -> None:
    """All stages test all labels, so another label tells of the stage; rounds do if none does."""
    card = cards["pairs"]
    every = [one["rungs"] for one in parts(card)]
    assert {len(rungs) for rungs in every} == {5}
    lie = forged(card, ((*PARTS, 0, "rungs"), every[0][1:]))
    assert "certificate/strata/parts/0/stages" in broken(lie, key=PUBLIC)
    lie = forged(card, *(((*PARTS, i, "rungs"), rungs[:-1]) for i, rungs in enumerate(every)))
    assert "provenance/contributors/rounds/stages" in broken(lie, key=PUBLIC)


@pytest.mark.parametrize("kind", ["bits:per-group", "labels owners", "pairs"])
def test_every_edit_of_a_field_but_tallies_and_words_fails(
    cards: dict[str, Card], kind: str
) -> None:
    """Of contract, certificate and parts; `test_card_lies` does so for cards without parts."""
    card, named = cards[kind], 0
    for place in edits(card.formal):
        if "rungs" in place or (place[-1] == "reason" and "parts" in place):
            continue
        try:
            lie = parse_card(replace(card, formal=edited(card.formal, place)).sign(KEY).to_json())
        except BadInput:
            continue
        assert broken(lie, key=PUBLIC), place
        named += 1
    assert named >= 40
