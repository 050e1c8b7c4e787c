"""What left in clear stands on the first page of a card, and in what is exported of it."""

import numpy as np
import pytest
import yaml

from confide.protocol.cards.card import Card
from confide.protocol.cards.exports import Curator, exported
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_clear import in_clear
from confide.protocol.cards.words.in_words import in_words
from tests.support.cards.campaign_cards import issued, reported
from tests.support.cards.central import TRUSTED
from tests.support.cards.group_cards import PLANS, group_card
from tests.support.owners.owners import LABEL_PLAN, PLAN, changed

CLEAR = {
    "labels:owner": "the model's probabilities for every record",
    "labels:aggregator": "ALL 7 FEATURES OF EVERY RECORD",
    "bits:per-group": "the ward of every record",
    "labels:per-group": "the ward of every record",
    "central by group": "how many records each owner has of every ward",
    "noised by group": "how many records each owner has of every ward",
}


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    folder, rng = tmp_path_factory.mktemp("clear"), np.random.default_rng(5)
    features = changed(LABEL_PLAN, sent_features=7)
    return {
        "labels:owner": issued(LABEL_PLAN, reported(LABEL_PLAN, rng, n=6_000)),
        "labels:aggregator": issued(features, reported(features, rng, n=6_000)),
        "bits": issued(PLAN, reported(PLAN, rng, n=6_000)),
    } | {
        name: group_card(PLANS[name], folder / name.partition(" ")[0].replace(":", "-"))
        for name in CLEAR
        if "group" in name
    }


@pytest.mark.parametrize("name", CLEAR)
def test_the_first_page_says_what_no_epsilon_protects(cards: dict[str, Card], name: str) -> None:
    """Beside the epsilon, among what is not promised, and in the entry of a registry."""
    card = cards[name]
    findings = verify(card)
    words = in_words(card, findings)
    privacy = dict(words.rows)["Privacy"]
    assert "IN CLEAR" in privacy
    assert CLEAR[name] in privacy
    assert any(CLEAR[name] in one for one in words.not_promised)
    entry = yaml.safe_load(exported(card, findings, form="registry", curator=Curator()))
    shown = entry["deployment"]["dp_variant"]["unprotected_quantities"]
    assert CLEAR[name].lower() in shown.lower()
    assert ("FEATURES" in shown) == (name == "labels:aggregator")


def test_cards_of_bits_say_that_nothing_left_in_clear(cards: dict[str, Card]) -> None:
    """Nor do counts without groups; a plan that cannot be read is not taken for one."""
    assert in_clear(cards["bits"].formal) == ()
    assert "IN CLEAR" not in dict(in_words(cards["bits"], []).rows)["Privacy"]
    assert in_clear({"plan": TRUSTED.to_bytes().hex()}) == ()
    assert in_clear({"plan": None}) == ()
    assert in_clear({"plan": "00"}) == ("whatever its plan asks for, which cannot be read",)
