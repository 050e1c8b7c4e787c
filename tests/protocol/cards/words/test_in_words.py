"""The first page of a card: the verdict and what it means, for every kind of card."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from confide.protocol.cards.card import Card
from confide.protocol.cards.page import as_html, as_markdown
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import campaign_name, headline, in_words
from confide.protocol.exact.sampling import SEEDED
from tests.support.cards.campaign_cards import counted, forged, issued
from tests.support.cards.cards import CONTRACT, KEY, campaign, infeasible, make_card
from tests.support.cards.central import TRUSTED
from tests.support.cards.full_data import made
from tests.support.owners.owners import changed


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> Card:
    return campaign(tmp_path_factory.mktemp("bits"))


@pytest.fixture(scope="module")
def trusted() -> Card:
    return issued(TRUSTED, counted(TRUSTED, np.random.default_rng(5)))


def test_a_pac_card_says_what_it_promises_costs_and_assumes(bits: Card) -> None:
    """Coverage and failure probability, epsilon once and as odds, owners, how to use it."""
    words = in_words(bits, verify(bits, key=KEY.public_key().public_bytes_raw()))
    rows = dict(words.rows)
    assert (words.status, words.good) == ("CERTIFIED", True)
    assert "at least 90 %" in rows["Promise"]
    assert "probability at most 0.1" in rows["Promise"]
    assert "epsilon 4 a record" in rows["Privacy"]
    assert "98.3 : 1.7" in rows["Privacy"]
    assert rows["Took part"] == "3 owners with 6,000 reports; the largest had 2,000."
    assert rows["Checked"].endswith("Signed by 03a1...31b8, the key that was asked for.")
    assert "independent draws" in rows["Assumes that"]
    assert words.use.endswith("predict_set(results)")
    assert "Anything, if the largest contributor lied." in words.not_promised


def test_the_box_names_the_key_that_signed_and_whether_it_was_compared(bits: Card) -> None:
    """With none, with the reader's, with another, with that of the server that shows the card."""
    mine = KEY.public_key().public_bytes_raw()
    for findings, own_key, says in (
        (verify(bits), False, "03a1...31b8, a key that was compared with none; compare it with"),
        (verify(bits, key=bytes(32)), False, "03a1...31b8, WHICH IS NOT THE KEY"),
        (verify(bits, key=mine), True, "03a1...31b8, the key of this server; compare it with"),
    ):
        assert (
            f"Signed by {says}" in dict(in_words(bits, findings, own_key=own_key).rows)["Checked"]
        )
    for shown in (as_html(bits, verify(bits)), as_markdown(bits, verify(bits))):
        assert "KEY is the aggregator's public key" in shown


def test_a_promise_with_nothing_to_spare_has_no_margin(bits: Card) -> None:
    """A level equal to what was asked is not shown as a margin of 0."""
    assert bits.formal["margin"] == 0
    assert "margin" not in headline(bits)
    spared = replace(bits, formal=bits.formal | {"margin": 0.004})
    assert "is guaranteed, with a margin of 0.004;" in headline(spared)


def test_a_marginal_card_promises_an_average_and_names_who_saw_counts(trusted: Card) -> None:
    """The average is not taken for a promise about this calibration."""
    words = in_words(trusted, verify(trusted))
    assert words.status == "GUARANTEED ON AVERAGE"
    assert "The aggregator itself saw exact counts." in dict(words.rows)["Privacy"]
    assert any("this one calibration" in text for text in words.not_promised)
    assert "anybody can sign" in dict(words.rows)["Checked"]
    counted_one = trusted.provenance | {"contributors": trusted.provenance["contributors"]}
    counted_one["contributors"] = counted_one["contributors"] | {"owners": 1}
    alone = in_words(replace(trusted, provenance=counted_one), [])
    assert dict(alone.rows)["Took part"].startswith("1 owner with ")


def test_a_pac_card_of_counts_promises_this_calibration() -> None:
    """With the probability that the calibration fails, not the delta of its privacy."""
    plan = changed(TRUSTED, beta=0.0, delta=0.07)
    card = issued(plan, counted(plan, np.random.default_rng(5)))
    words = in_words(card, verify(card))
    assert words.status == "CERTIFIED"
    assert "probability at most 0.07" in dict(words.rows)["Promise"]
    assert not any("this one calibration" in text for text in words.not_promised)


def test_simulations_and_trivial_cards_say_so_in_large_letters(
    tmp_path: Path, trusted: Card
) -> None:
    """Neither is shown as good, nor are cards that fail, are unsigned, or do not verify."""
    seeded = campaign(tmp_path / "seeded", randomness=SEEDED)
    formal = trusted.formal
    top = forged(
        trusted,
        (("released",), formal["released"] | {"threshold": 1.0}),
        (("decision",), "infeasible"),
        (("failed",), ["informative"]),
    )
    lie = forged(trusted, (("contract", "coverage"), 0.95))
    shown = {
        "SIMULATION ONLY": in_words(seeded, verify(seeded)),
        "TRIVIAL": in_words(top, []),
        "NOT GUARANTEED": in_words(make_card(*infeasible()), []),
        "DOES NOT VERIFY": in_words(lie, verify(lie)),
    }
    for status, words in shown.items():
        assert (words.status, words.good) == (status, False)
    assert dict(shown["SIMULATION ONLY"].rows)["Privacy"].startswith("None")
    assert "simulation=True" in shown["SIMULATION ONLY"].use
    assert not shown["TRIVIAL"].use
    unsigned = replace(trusted, key=b"", signature=b"")
    found = in_words(unsigned, verify(unsigned, unsigned=True))
    assert "NOBODY SIGNED IT" in dict(found.rows)["Checked"]


@pytest.mark.parametrize("card", [make_card(), made()], ids=["search", "full-data"])
def test_cards_without_campaigns_have_a_first_page(card: Card) -> None:
    """A contract that was only searched would cost something, and nobody took part."""
    words = in_words(card, verify(card))
    assert words.good
    released = card.formal["released"] is not None
    took_part = dict(words.rows)["Took part"]
    assert took_part.startswith("Not stated" if released else "Nobody yet")
    assert ("It cost" in dict(words.rows)["Privacy"]) == released
    assert bool(words.use) == released


def test_pages_open_with_the_verdict_and_fold_the_fields(bits: Card) -> None:
    """The box stands before picture and fields, on the page and in Markdown."""
    findings = verify(bits)
    page, text = as_html(bits, findings), as_markdown(bits, findings)
    assert page.index('class="status"') < page.index("<svg") < page.index("<details>")
    assert page.index("<details>") < page.index("SHA-256 of the model")
    assert text.index(headline(bits)) < text.index("## Contract")
    assert "<h1>Prediction sets with coverage 0.9</h1>" in page


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("bits:certified 12291146972526840467", "bits:certified"),
        ("Triage model, autumn 2026", "Triage model, autumn 2026"),
        ("12291146972526840467", "12291146972526840467"),
    ],
)
def test_no_page_is_named_by_the_number_of_a_run(name: str, shown: str) -> None:
    """A year is no run; a name that is nothing but a number stays."""
    card = make_card(replace(CONTRACT, name=name))
    assert campaign_name(card) == shown
    assert f": {shown}</title>" in as_html(card, [])
