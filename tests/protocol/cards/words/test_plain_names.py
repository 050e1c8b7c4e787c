"""Fields of cards have plain names: none is shown as it is spelt in the file."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from confide.protocol.cards.card import Card, card_schema
from confide.protocol.cards.page import as_html
from confide.protocol.cards.sections import sections
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import headline
from confide.protocol.cards.words.plain_names import PLAIN
from tests.support.cards.campaign_cards import counted, issued, reported
from tests.support.cards.cards import infeasible, make_card
from tests.support.cards.central import NOISED, TRUSTED
from tests.support.cards.full_data import made
from tests.support.owners.owners import LABEL_PLAN, PLAN


def properties(schema: Any) -> Iterator[str]:
    """The names of all fields that a card may have."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for inner in schema.values():
            yield from properties(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from properties(inner)


SPELT = {name for name in properties(card_schema()) if "_" in name}


def test_every_field_whose_spelling_would_show_has_a_name() -> None:
    """By the schema, not by the cards that tests happen to make."""
    assert len(SPELT) > 30
    assert SPELT - PLAIN.keys() == set()
    assert not [name for name in PLAIN.values() if "_" in name]
    assert PLAIN.keys() - {*properties(card_schema())} == set()


def cards() -> dict[str, Card]:
    rng = np.random.default_rng(5)
    return {
        "search": make_card(),
        "infeasible": make_card(*infeasible()),
        "full-data": made(),
        "trusted": issued(TRUSTED, counted(TRUSTED, rng)),
        "noised": issued(NOISED, counted(NOISED, rng)),
        "bits": issued(PLAN, reported(PLAN, rng, n=6_000)),
        "labels": issued(LABEL_PLAN, reported(LABEL_PLAN, rng, n=6_000)),
    }


@pytest.mark.parametrize("name", cards())
def test_nothing_on_a_page_is_spelt_with_an_underscore(name: str) -> None:
    """Neither headings and rows nor the fields that stand together in a value; only the code that
    predicts is code."""
    card = cards()[name]
    findings = verify(card)
    for heading, rows in sections(card, findings):
        for row, value in rows:
            assert "_" not in heading + row
            assert not re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", value), (row, value)
    assert "_" not in headline(card)
    page = re.sub(r"<style>.*?</style>|<code>.*?</code>", "", as_html(card, findings))
    assert not [spelt for spelt in SPELT if re.search(rf"\b{spelt}\b", page)]
