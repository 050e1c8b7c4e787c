"""Cards with a threshold for each part of the records: verification, words and prediction."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.protocol.cards.card import Card
from confide.protocol.cards.page import card_article
from confide.protocol.cards.trust import thresholds_of
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import headline
from confide.protocol.errors import BadInput
from confide.protocol.prediction.predictor import Predictor
from tests.support.cards.calibrated import calibrated_card
from tests.support.cards.campaign_cards import forged
from tests.support.cards.cards import KEY, broken, campaign
from tests.support.truth.known import label_population

PUBLIC = KEY.public_key().public_bytes_raw()


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Card:
    """The card of a class-conditional campaign whose owners answered in bytes."""
    folder = tmp_path_factory.mktemp("classes")
    return campaign(folder / "all", method="labels", variant="class-conditional")


def parts(card: Card) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = card.formal["certificate"]["strata"]["parts"]
    return found


def test_an_honest_card_verifies_and_says_what_it_promises(card: Card) -> None:
    """Every clause holds; the page has a row for every class, and says that delta is each one's."""
    assert broken(card, key=PUBLIC) == []
    assert len(parts(card)) == card.formal["certificate"]["labels"]
    assert any(part["threshold"] < 1 for part in parts(card))
    page = card_article(card, verify(card, key=PUBLIC))
    assert "Threshold of every class" in page
    assert "each class, on its own, not jointly," in page
    assert "Label frequencies may change" in page
    assert headline(card)


def test_lies_about_a_class_are_named(card: Card) -> None:
    """A lower threshold of a class, a joint claim at the same delta, a class that is missing, and a
    rung that did not reach its capital."""
    place: tuple[Any, ...] = ("certificate", "strata", "parts")
    low = next(i for i, part in enumerate(parts(card)) if part["threshold"] < 1)
    named = f"certificate/strata/parts/{low}"
    lie = forged(
        card,
        ((*place, low, "threshold"), 0.01),
        (("released", "strata", "parts", low, "threshold"), 0.01),
    )
    assert f"{named}/threshold" in broken(lie)
    assert f"{named}/delta" in broken(forged(card, (("certificate", "strata", "joint"), True)))
    fewer = [part for part in parts(card) if part["name"] != "0"]
    assert "certificate/strata/names" in broken(forged(card, (place, fewer)))
    poor = [rung | {"log_capital": rung["needed"] - 1.0} for rung in parts(card)[low]["rungs"]]
    assert f"{named}/threshold" in broken(forged(card, ((*place, low, "rungs"), poor)))
    silent = forged(card, ((*place, low, "reason"), "too few"))
    assert f"{named}/reason" in broken(silent)


def test_pooled_cards_have_no_strata_and_class_cards_do(card: Card, tmp_path: Path) -> None:
    """A variant with one threshold must not carry parts, and one with a threshold each must."""
    pooled = campaign(tmp_path / "pooled", method="labels", variant="certified")
    strata = card.formal["certificate"]["strata"]
    assert "certificate/strata" in broken(forged(pooled, (("certificate", "strata"), strata)))
    without = dict(card.formal["certificate"])
    del without["strata"]
    assert broken(forged(card, (("certificate",), without)))


def test_the_predictor_of_a_card_has_the_threshold_of_every_class(card: Card) -> None:
    """Sets hold a label if its score is at most its own threshold; a part cannot be chosen."""
    predictor = Predictor.from_card(card, key=PUBLIC)
    limits = np.array([part["threshold"] for part in parts(card)])
    assert predictor.class_thresholds == tuple(limits.tolist())
    assert predictor.threshold == limits.max()
    probs = np.random.default_rng(1).dirichlet(np.ones(len(limits)), 50).astype(np.float32)
    assert np.array_equal(predictor.predict_set(probs), (1 - probs) <= limits)
    with pytest.raises(BadInput, match="no such parts"):
        Predictor.from_card(card, key=PUBLIC, part="0")


@pytest.mark.parametrize("method", ["labels:class-conditional", "pairs"])
def test_a_class_has_the_reports_of_the_card_and_of_its_owners(method: str) -> None:
    """More of them would allow for a capital that nobody earned."""
    results, truth = label_population(4_000, 4, np.random.default_rng(1), ties=False)
    made = calibrated_card(results, truth, method=method)
    n, found = 500_000, made.formal["certificate"]
    assert broken(made) == []
    place = ("certificate", "strata", "parts")
    assert "certificate/strata/n" in broken(forged(made, ((*place, 0, "n"), n)))
    every = [((*place, i, "n"), n) for i in range(len(found["strata"]["parts"]))]
    lie = forged(made, (("certificate", "n"), n), *every)
    assert "provenance/contributors/of" in broken(lie)


def test_owners_and_groups_are_chosen_by_name() -> None:
    """The threshold of a named part, or the largest, which covers each of them."""
    named = [{"name": "ward a", "threshold": 0.4}, {"name": "ward b", "threshold": 0.7}]
    released = {"threshold": 0.7, "strata": {"by": "group", "parts": named}}
    assert thresholds_of(released, "ward a") == (0.4, ())
    assert thresholds_of(released, None) == (0.7, ())
    with pytest.raises(BadInput, match="accepted: ward a, ward b"):
        thresholds_of(released, "ward c")
