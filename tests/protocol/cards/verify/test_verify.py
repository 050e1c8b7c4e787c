import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from confide.protocol.cards.card import parse_card
from confide.protocol.errors import BadInput
from tests.support.cards.cards import (
    GRID,
    KEY,
    OTHER,
    broken,
    campaign,
    edited,
    edits,
    infeasible,
    make_card,
)
from tests.support.repository.places import ROOT


def test_every_edit_of_a_formal_field_is_caught(tmp_path: Path) -> None:
    """Change any one field of a feasible, an infeasible or a campaign's card: the signature no
    longer holds."""
    for card in (make_card(grid=GRID[-2:]), make_card(*infeasible()), campaign(tmp_path)):
        assert not broken(card)
        for place in edits(card.formal):
            changed = replace(card, formal=edited(card.formal, place))
            try:
                found = parse_card(changed.to_json())
            except BadInput:
                continue
            assert "signature" in broken(found), place


DERIVED = (
    "rank",
    "level",
    "inflation_ranks",
    "feasible",
    "shortlist",
    "selected",
    "decision",
    "margin",
    "failed",
    "total",
    "flags",
    "best",
    "level_after",
    "rest",
    "threshold",
    "epsilon",
    "ones",
)


def test_a_signed_lie_is_named(tmp_path: Path) -> None:
    """Signed again by a forger, an edit of anything that follows from the rest fails the clause it
    breaks."""
    named = 0
    for card in (make_card(grid=GRID[-2:]), make_card(*infeasible()), campaign(tmp_path)):
        for place in edits(card.formal):
            free = place[0] in ("suggestions", "contract") or (
                "rungs" in place and place[-1] == "threshold"
            )
            if free or not set(map(str, place)) & set(DERIVED):
                continue
            forged = replace(card, formal=edited(card.formal, place)).sign(OTHER)
            if place[-1] == "ones" or (place[-1] == "epsilon" and place[0] == "certificate"):
                forged.formal["certificate"]["rungs"][-1]["ones"] = 0
                forged = forged.sign(OTHER)
            try:
                forged = parse_card(forged.to_json())
            except BadInput:
                continue
            found = broken(forged)
            assert found, place
            assert "signature" not in found
            named += 1
    assert named > 60


LOCAL_LIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a published threshold from nothing": (
        {"variant": "published-star"},
        {"n": 0, "threshold": 0.0},
    ),
    "no slack": ({"variant": "published"}, {"slack": 0.0, "level": 0.9}),
    "less slack than n leaves": (
        {"variant": "published", "method": "labels"},
        {"slack": 1e-4, "level": 0.9 - 1e-4},
    ),
    "a variant of another method": (
        {"method": "labels", "variant": "certified"},
        {"variant": "one-shot", "rungs": []},
    ),
    "fewer reports than the rungs count": ({}, {"n": 100}),
    "another score": ({}, {"score": "nonsense"}),
    "another channel": ({}, {"channel": "k-rr"}),
    "no assumptions": ({}, {"assumptions": []}),
    "a threshold a hair lower": ({}, {"threshold": 0.5}),
    "slack where there is none": ({}, {"slack": 0.1}),
}


@pytest.mark.parametrize("lie", list(LOCAL_LIES))
def test_an_issuer_who_contradicts_itself_is_caught(lie: str, tmp_path: Path) -> None:
    """Signed by its own issuer, a campaign's card whose parts do not belong together fails a
    clause."""
    campaign_of, changes = LOCAL_LIES[lie]
    card = campaign(tmp_path, **campaign_of)
    formal = copy.deepcopy(card.formal)
    formal["certificate"] |= changes
    forged = parse_card(replace(card, formal=formal).sign(KEY).to_json())
    assert any(clause.startswith(("certificate", "released")) for clause in broken(forged)), broken(
        forged
    )


def test_a_suggestion_may_change_only_what_it_says() -> None:
    """Another contract inside a suggestion, or all of them left out, does not verify."""
    card = make_card(*infeasible())
    forged = copy.deepcopy(card.formal)
    forged["suggestions"][0]["contract"] |= {"coverage": 0.01, "beta": 0.2}
    forged["suggestions"][0]["configuration"]["n"] = 5
    assert "suggestions/0/kind" in broken(replace(card, formal=forged).sign(KEY))
    silent = card.formal | {"suggestions": []}
    assert "suggestions/more records" in broken(replace(card, formal=silent).sign(KEY))


@pytest.mark.parametrize(
    "place",
    [
        ("certificate", "planned", None),
        ("certificate", "rungs", [{"threshold": 0.5, "log_capital": 9.0, "needed": 3.0}]),
        ("certificate", "n", 10**400),
        ("certificate", "delta", None),
        ("certificate", "alpha", 0),
        ("certificate", "epsilon", 1e308),
    ],
)
def test_strange_cards_are_refused_or_named(place: tuple[str, str, Any], tmp_path: Path) -> None:
    """Whatever stands in a card, verifying it ends in clauses or in an unreadable card, never in a
    crash."""
    card = campaign(tmp_path)
    formal = copy.deepcopy(card.formal)
    formal[place[0]][place[1]] = place[2]
    text = replace(card, formal=formal).sign(KEY).to_json()
    try:
        found = parse_card(text)
    except BadInput:
        return
    assert broken(found)


def test_cards_with_two_readings_are_unreadable() -> None:
    """Names that stand twice, numbers beyond floats, floats for integers and bottomless nesting are
    not cards."""
    text = make_card().to_json()
    for wrong in (
        text.replace('"decision": "feasible"', '"decision": "infeasible", "decision": "feasible"'),
        text.replace('"beta": 0.001', '"beta": 1e400'),
        text.replace('"best": 26', '"best": 26.0'),
        "[" * 100_000,
    ):
        assert wrong != text
        with pytest.raises(BadInput, match="accepted"):
            parse_card(wrong)


def test_cards_of_every_local_variant_can_be_verified() -> None:
    """In a process of its own, that verifying has rules for them does not hang on what else was
    imported."""
    script = (
        "from confide.protocol.cards.verify import card\n"
        "from confide.protocol.cards.verify.local.rules import RULES\n"
        "from confide.protocol.methods.registry import local_variants\n"
        "for name, variants in local_variants().items():\n"
        "    assert {*variants} <= {*RULES[name].variants}, name\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True)
