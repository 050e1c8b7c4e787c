"""Cards of campaigns that test every owner on its own: verification, words, lies, prediction."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.protocol.cards.card import Card
from confide.protocol.cards.page import card_article
from confide.protocol.cards.trust import thresholds_of
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.promise_words import promise
from confide.protocol.certificate import LIARS, LIARS_IN_ORDER
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.plan import round_of
from tests.support.cards.campaign_cards import forged
from tests.support.cards.cards import KEY, broken, campaign
from tests.support.cards.left_out import without_stage
from tests.support.owners.owners import NOW, PLAN, changed, owner, signed

PUBLIC = KEY.public_key().public_bytes_raw()
KINDS = [
    (method, variant)
    for method in ("bits", "labels")
    for variant in ("for-every-owner", "per-owner")
]


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Card]:
    """A card of each kind, of three owners that answered in bytes; a fourth's floor is missed."""
    folder = tmp_path_factory.mktemp("owners")
    return {
        (method, variant): campaign(
            folder / f"{method}-{variant}", method=method, variant=variant, part_floor=500
        )
        for method, variant in KINDS
    }


def parts(card: Card) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = card.formal["certificate"]["strata"]["parts"]
    return found


@pytest.mark.parametrize("kind", KINDS, ids=":".join)
def test_an_honest_card_verifies_and_says_what_it_promises(
    cards: dict[tuple[str, str], Card], kind: tuple[str, str]
) -> None:
    """Every clause holds; the page has a row for every owner, and the promise is the variant's."""
    card = cards[kind]
    assert broken(card, key=PUBLIC) == []
    assert [part["name"] for part in parts(card)] == ["1", "2", "3"]
    assert all(part["threshold"] < 1 for part in parts(card))
    page = card_article(card, verify(card, key=PUBLIC))
    together = kind[1] == "for-every-owner"
    head = "What its own reports certify, of every owner" if together else "Threshold of every"
    assert head in page
    said = promise(card.formal | {"decision": "feasible"})
    said_each = "each owner, on its own, not jointly," in said
    assert ("At every owner that is covered, 3 of 3" in said, said_each) == (together, not together)
    assert "epsilon" not in card.formal["shuffle"]


@pytest.mark.parametrize("kind", KINDS, ids=":".join)
def test_lies_about_an_owner_are_named(
    cards: dict[tuple[str, str], Card], kind: tuple[str, str]
) -> None:
    """A lower threshold, an owner left out, a divided delta, a rung that is not the plan's."""
    card, place = cards[kind], ("certificate", "strata", "parts")
    high = max(range(3), key=lambda i: float(parts(card)[i]["threshold"]))
    named = f"certificate/strata/parts/{high}"
    assert f"{named}/threshold" in broken(forged(card, ((*place, high, "threshold"), 0.01)))
    assert f"{named}/delta" in broken(forged(card, ((*place, high, "delta"), 0.05)))
    hidden = {**parts(card)[high], "covered": False, "threshold": 1.0, "rungs": []}
    hidden["reason"] = "too few reports"
    assert f"{named}/covered" in broken(forged(card, ((*place, high), hidden)))
    assert "certificate/threshold" in broken(forged(card, (("certificate", "threshold"), 0.01)))
    other = ("certificate", "strata", "together")
    if kind[1] == "for-every-owner":
        joint = ("certificate", "strata", "joint")
        assert "certificate/strata/joint" in broken(forged(card, (joint, True)))
    else:
        assert "certificate/strata/together" in broken(forged(card, (other, True)))


def test_a_stage_of_an_owner_is_tested_with_the_answers_that_were_planned(
    cards: dict[tuple[str, str], Card],
) -> None:
    """The rest of a stage follows from the owner's own number of planned answers."""
    card = cards["bits", "for-every-owner"]
    place: tuple[Any, ...] = ("certificate", "strata", "parts", 0)
    lie = forged(card, ((*place, "rungs", 0, "rest"), 1))
    assert "certificate/strata/parts/0/rungs/0/rest" in broken(lie)
    assert any(
        clause.startswith("certificate/strata/parts/0/rungs")
        for clause in broken(forged(card, ((*place, "reports", 0), 3_000)))
    )


@pytest.mark.parametrize("kind", KINDS, ids=":".join)
def test_cards_that_allow_for_lies_of_owners_say_when_liars_speak(
    tmp_path: Path, kind: tuple[str, str]
) -> None:
    """In rounds for bits, in the order of bets for labels; a card that says it otherwise fails."""
    card = campaign(tmp_path, method=kind[0], variant=kind[1], part_floor=500, max_corrupt=2)
    stated = card.formal["certificate"]["assumptions"]
    expected, other = (LIARS, LIARS_IN_ORDER) if kind[0] == "bits" else (LIARS_IN_ORDER, LIARS)
    assert stated[-1] == expected
    assert broken(card, key=PUBLIC) == []
    for said in ([*stated[:-1], other], stated[:-1]):
        lie = forged(card, (("certificate", "assumptions"), said))
        assert "certificate/assumptions" in broken(lie)


@pytest.mark.parametrize("kind", KINDS, ids=":".join)
def test_a_part_counts_no_more_answers_than_it_gave(
    cards: dict[tuple[str, str], Card], kind: tuple[str, str]
) -> None:
    """Half a million answers that prove a low threshold, in a part of two thousand reports."""
    card, place = cards[kind], ("certificate", "strata", "parts", 0)
    part = parts(card)[0]
    named = "certificate/strata/parts/0"
    if kind[0] == "labels":
        # Its capital is bounded by its reports, and these by those of all.
        rich = [rung | {"log_capital": 10.0 * part["n"]} for rung in part["rungs"]]
        assert any(one.startswith(named) for one in broken(forged(card, ((*place, "rungs"), rich))))
        return
    staged = kind[1] == "for-every-owner"
    count = part["n"] if staged else max(rung["n"] for rung in part["rungs"])
    assert f"{named}/n" in broken(forged(card, ((*place, "n"), count - 1)))
    assert f"{named}/n" not in broken(forged(card, ((*place, "n"), count)))
    many = dict(part["rungs"][0], n=500_000, ones=499_000, level_after=1.0)
    many |= {"threshold": 0.01} if staged else {}
    rungs, low = [many], float(many["threshold"])
    lie = forged(
        card,
        ((*place, "rungs"), rungs),
        ((*place, "threshold"), low),
        *((("released", "strata", "parts", 0, "threshold"), low),) * (not staged),
        *_lowered(card, low),
    )
    # Where owners are tested together, the others were asked another threshold.
    clauses = [f"{named}/stages", "certificate/strata/stages"] if staged else [f"{named}/n"]
    assert broken(lie, key=PUBLIC) == clauses


def _lowered(card: Card, threshold: float) -> list[tuple[tuple[Any, ...], Any]]:
    """What else a card says, once the threshold of its first part is another."""
    rest = [part["threshold"] for part in parts(card)[1:]]
    top = max([threshold, *rest])
    return [(("certificate", "threshold"), top), (("released", "threshold"), top)]


@pytest.mark.parametrize("hiding", [[0], [0, 1, 2]])
def test_owners_do_not_leave_out_a_stage(
    cards: dict[tuple[str, str], Card], hiding: list[int]
) -> None:
    """One alone is told by the others' rungs; all together, by the answers still to come."""
    card = cards["bits", "for-every-owner"]
    found, place = card.formal["certificate"], "certificate/strata"
    lies = [
        part | without_stage(found | part, 0) if i in hiding else part
        for i, part in enumerate(parts(card))
    ]
    top = max(part["threshold"] for part in lies)
    lie = forged(
        card,
        (("certificate", "strata", "parts"), lies),
        (("certificate", "threshold"), top),
        (("released", "threshold"), top),
    )
    clause = f"{place}/parts/0/stages" if len(hiding) == 1 else f"{place}/stages"
    assert broken(lie, key=PUBLIC) == [clause]


def test_an_owner_that_left_has_a_stage_without_reports(tmp_path: Path) -> None:
    """An honest card that says so verifies; whoever hides an owner that answered does not."""
    owners = [owner(tmp_path / str(i), seed=i) for i in range(3)]
    plan = changed(PLAN, variant="for-every-owner", part_floor=500)
    name = signed(plan)

    def ask(query: bytes) -> list[Sent]:
        there = range(3) if round_of(query) < 3 else (0, 2)
        return [Sent(bytes([i]), owners[i].answer(name, query)) for i in there]

    outcome = run_campaign(plan, ask)
    real = replace(outcome.certificate, randomness=OPERATING_SYSTEM)
    card = campaign_card(plan, replace(outcome, certificate=real), diagnostic={}, issued=NOW)
    card = card.sign(KEY)
    assert parts(card)[1]["reason"].startswith("left")
    assert broken(card, key=PUBLIC) == []
    # It left at the second stage, so that the third was asked for those that stayed.
    assert [0 in part["reports"][3:4] for part in parts(card)] == [False, True, False]
    kept = [{**part, "rungs": part["rungs"][:2]} for part in parts(card)]
    hiding = forged(card, (("certificate", "strata", "parts"), kept))
    assert "certificate/strata/stages" in broken(hiding, key=PUBLIC)
    hidden = {**parts(card)[0], "covered": False, "threshold": 1.0, "rungs": []}
    hidden["reason"] = parts(card)[1]["reason"]
    top = float(parts(card)[2]["threshold"])
    lie = forged(
        card,
        (("certificate", "strata", "parts", 0), hidden),
        (("certificate", "threshold"), top),
        (("released", "threshold"), top),
    )
    assert broken(lie, key=PUBLIC) == ["certificate/strata/parts/0/reason"]


def test_owners_below_the_floor_are_named_and_left_out(tmp_path: Path) -> None:
    """With a floor that no owner reaches nothing is certified, and the card says why."""
    card = campaign(tmp_path, variant="for-every-owner", part_floor=5_000)
    assert [part["covered"] for part in parts(card)] == [False] * 3
    assert broken(card, key=PUBLIC) == []
    assert "the 5000 reports that the plan asks of one" in card.formal["certificate"]["reason"]


def test_owners_have_thresholds_to_predict_with_only_where_each_has_its_own(
    cards: dict[tuple[str, str], Card],
) -> None:
    """A certificate for every owner has one threshold."""
    each, every = (cards["labels", variant] for variant in ("per-owner", "for-every-owner"))
    found, _ = thresholds_of(each.formal["released"], "2")
    assert found == parts(each)[1]["threshold"]
    with pytest.raises(BadInput, match="the card has no such parts"):
        thresholds_of(every.formal["released"], "2")
    whole, _ = thresholds_of(every.formal["released"], None)
    assert whole == max(part["threshold"] for part in parts(every))
