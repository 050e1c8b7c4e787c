"""Cards of averages and bands: verification, words, the choice of a threshold, and lies."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.protocol.cards.card import Card
from confide.protocol.cards.page import card_article
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import headline, in_words
from confide.protocol.certificate import BAND, MARGINAL, PAC
from confide.protocol.errors import BadInput
from confide.protocol.levels import band_levels, marginal_levels
from confide.protocol.prediction.predictor import Predictor
from tests.support.cards.campaign_cards import forged
from tests.support.cards.cards import KEY, broken, campaign, edited, edits
from tests.support.cards.left_out import without_stage
from tests.support.owners.owners import level_fields

PUBLIC = KEY.public_key().public_bytes_raw()
CASES: dict[str, dict[str, Any]] = {
    "labels marginal": {"method": "labels", "guarantee": MARGINAL, "max_corrupt": 3},
    "labels band": {"method": "labels", "guarantee": BAND},
    "bits marginal": {"guarantee": MARGINAL, "max_corrupt": 3},
    "one-shot marginal": {"variant": "one-shot", "guarantee": MARGINAL},
    "one-shot band": {"variant": "one-shot", "guarantee": BAND},
}


def leveled(folder: Path, *, guarantee: str, **asked: Any) -> Card:
    """The card of a campaign whose three owners answered in bytes."""
    delta = 0.1 if guarantee == BAND else 0.0
    levels = band_levels(0.1, delta) if delta else marginal_levels(0.1, error=0.01, count=8)
    return campaign(folder, delta=delta, **level_fields(levels), **asked)


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    folder = tmp_path_factory.mktemp("levels")
    return {name: leveled(folder / name, **asked) for name, asked in CASES.items()}


def certificate(card: Card) -> dict[str, Any]:
    found: dict[str, Any] = card.formal["certificate"]
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_honest_cards_verify_and_say_what_they_promise(name: str, cards: dict[str, Card]) -> None:
    """Every clause holds; the page has a row for every level, and the words are of the kind."""
    card = cards[name]
    assert broken(card, key=PUBLIC) == []
    found, findings = certificate(card), verify(card, key=PUBLIC)
    assert 0 < found["threshold"] < 1
    page, words = card_article(card, findings), " ".join(map(str, in_words(card, findings).rows))
    if found["kind"] == BAND:
        assert "Band: coverage that holds at every threshold" in page
        assert "a threshold may be chosen later" in words
        assert headline(card).startswith("CERTIFIED")
    else:
        assert "Levels of the average" in page
        assert "On average over calibrations and new records" in words
        assert headline(card).startswith("GUARANTEED ON AVERAGE")
        assert any("an average over many" in text for text in in_words(card, findings).not_promised)
    assert page.count("but for probability") == len(found["levels"])


@pytest.mark.parametrize("name", list(CASES))
def test_lies_about_levels_are_named(name: str, cards: dict[str, Card]) -> None:
    """A larger delta, a lower threshold, a level left out, another kind: each names its clause."""
    card, place = cards[name], ("certificate", "levels")
    levels = certificate(card)["levels"]
    low = next(i for i, one in enumerate(levels) if 0 < one["threshold"] < 1)
    lies = {
        "certificate/levels/delta": forged(card, ((*place, low, "delta"), 0.999)),
        f"certificate/levels/{low}/threshold": forged(card, ((*place, low, "threshold"), 0.01)),
        "certificate/levels": forged(card, (place, [*levels[:low], *levels[low + 1 :]])),
        "certificate/levels/alpha": forged(card, (place, [levels[1], levels[0], *levels[2:]])),
        "contract/kind": forged(card, (("contract", "kind"), PAC), (("certificate", "kind"), PAC)),
        "certificate/threshold": forged(
            card,
            (("certificate", "threshold"), 0.01),
            (("released", "threshold"), 0.01),
        ),
    }
    for clause, lie in lies.items():
        assert clause in broken(lie), clause
    kind = MARGINAL if certificate(card)["kind"] == BAND else BAND
    assert broken(forged(card, (("contract", "kind"), kind), (("certificate", "kind"), kind)))


@pytest.mark.parametrize("name", ["labels marginal", "bits marginal", "one-shot band"])
def test_every_edit_of_a_field_fails_by_name(name: str, cards: dict[str, Card]) -> None:
    """Of contract, certificate and what is released; tallies are what only the issuer knows."""
    card, named = cards[name], 0
    for place in edits(card.formal):
        free = place == ("certificate", "n") or "rungs" in place
        if free or place[0] not in ("contract", "certificate", "released"):
            continue
        lie = replace(card, formal=edited(card.formal, place)).sign(KEY)
        assert {*broken(lie)} - {"signature", "signer"}, place
        named += 1
    assert named > 50


@pytest.mark.parametrize("name", ["labels marginal", "bits marginal"])
def test_a_curve_above_alpha_does_not_verify(name: str, cards: dict[str, Card]) -> None:
    """Alphas that rise a little, each with its delta, miss more than alpha on average."""
    card = cards[name]
    levels = [one | {"alpha": 1.01 * one["alpha"]} for one in certificate(card)["levels"]]
    assert "certificate/levels/delta" in broken(forged(card, (("certificate", "levels"), levels)))


def test_the_smallest_threshold_of_an_average_does_not_verify(cards: dict[str, Card]) -> None:
    """Published is the largest, which alone the bound is for."""
    card = cards["one-shot marginal"]
    least = min(one["threshold"] for one in certificate(card)["levels"])
    assert least < certificate(card)["threshold"]
    lie = forged(card, (("certificate", "threshold"), least), (("released", "threshold"), least))
    assert "certificate/threshold" in broken(lie)


def test_levels_of_bits_were_tested_in_the_same_stages(cards: dict[str, Card]) -> None:
    """A level that tells of other ones in a stage than the others does not verify."""
    card = cards["bits marginal"]
    levels = certificate(card)["levels"]
    i = next(i for i, one in enumerate(levels) if one["rungs"])
    place = ("certificate", "levels", i, "rungs", 0, "ones")
    more = levels[i]["rungs"][0]["ones"] - 1
    assert "certificate/levels/stages" in broken(forged(card, (place, more)))


def test_a_level_does_not_leave_out_a_stage_that_it_failed(cards: dict[str, Card]) -> None:
    """Its level would start again at delta; the other levels tell what it was asked."""
    card = cards["bits marginal"]
    found, place = certificate(card), ("certificate", "levels")
    failed = [
        (i, j)
        for i, one in enumerate(found["levels"])
        for j, rung in enumerate(one["rungs"][:-1])
        if 0 < rung["level_after"] < 1
    ]
    assert failed
    for i, j in failed:
        one = found["levels"][i]
        hidden = one | without_stage(found | one, j, card.formal["contract"]["max_corrupt"])
        top = max([hidden["threshold"], *(o["threshold"] for o in found["levels"] if o != one)])
        lie = forged(
            card,
            ((*place, i), hidden),
            (("certificate", "threshold"), top),
            (("released", "threshold"), top),
        )
        clauses = {clause for clause in broken(lie) if not clause.startswith("provenance")}
        assert clauses == {f"certificate/levels/{i}/stages"}


def test_levels_do_not_leave_out_their_first_stage_together(cards: dict[str, Card]) -> None:
    """Then no level tells of it, but the answers still to come do."""
    card = cards["bits marginal"]
    found = certificate(card)
    lies, first = card.formal["contract"]["max_corrupt"], found["levels"][0]["rungs"][0]["rest"]
    levels = []
    for one in found["levels"]:
        number = next((j for j, rung in enumerate(one["rungs"]) if rung["rest"] == first), -1)
        levels.append(one | without_stage(found | one, number, lies))
    top = max(one["threshold"] for one in levels)
    lie = forged(
        card,
        (("certificate", "levels"), levels),
        (("certificate", "threshold"), top),
        (("released", "threshold"), top),
    )
    assert broken(lie) == ["certificate/levels/stages"]


@pytest.mark.parametrize("name", ["labels band", "one-shot band"])
def test_a_threshold_of_a_band_is_chosen_when_predicting(name: str, cards: dict[str, Card]) -> None:
    """By coverage or by itself; sets grow with coverage, and what is not certified is refused."""
    card = cards[name]
    band = [(one["coverage"], one["threshold"]) for one in card.formal["released"]["band"]]
    held = [(at, q) for at, q in band if q < 1]
    plain = Predictor.from_card(card, key=PUBLIC)
    assert plain.certified is None
    assert plain.threshold == certificate(card)["threshold"]
    for at, q in held:
        chosen = Predictor.from_card(card, key=PUBLIC, coverage=at)
        assert chosen.threshold <= q
        assert chosen.certified >= at
        again = Predictor.from_card(card, key=PUBLIC, threshold=chosen.threshold)
        assert again == chosen
    between = Predictor.from_card(card, key=PUBLIC, coverage=0.83)
    assert between.certified == pytest.approx(0.85)
    probs = np.random.default_rng(0).dirichlet(np.ones(5), 50)
    wide = Predictor.from_card(card, key=PUBLIC, coverage=max(at for at, _ in held))
    assert (wide.sizes(probs) >= between.sizes(probs)).all()
    low = min(q for _, q in held)
    for asked in (
        {"coverage": 0.999},
        {"coverage": 0.0},
        {"threshold": low / 2},
        {"threshold": 1.5},
        {"coverage": 0.8, "threshold": 0.9},
    ):
        with pytest.raises(BadInput):
            Predictor.from_card(card, key=PUBLIC, **asked)


def test_cards_without_a_band_have_no_other_threshold(cards: dict[str, Card]) -> None:
    """An average is one threshold's."""
    with warnings.catch_warnings(), pytest.raises(BadInput, match="no band"):
        Predictor.from_card(cards["labels marginal"], key=PUBLIC, coverage=0.8)
