from dataclasses import replace
from typing import Any

import pytest

from confide.aggregator.cards.full_data import full_data_formal
from confide.protocol.cards.card import Card, parse_card
from confide.protocol.cards.page import as_html, as_markdown
from confide.protocol.cards.verify.profiles import Training
from confide.protocol.cards.words.in_words import headline
from confide.protocol.errors import BadInput
from confide.protocol.privacy.budgets import Budget
from confide.protocol.privacy.losses import Pure, SampledGaussian
from confide.protocol.privacy.profiles import Profile
from tests.support.cards.cards import KEY, OTHER, broken, edited, edits
from tests.support.cards.full_data import CONTRACT, QUANTILE, RELEASED, TRAINING, made


@pytest.fixture(scope="module")
def card() -> Card:
    return made()


def test_a_full_data_card_verifies_and_can_be_read(card: Card) -> None:
    """What was written is what an independent computation of the profile, the rank and the budget
    finds."""
    assert not broken(parse_card(card.to_json()), key=KEY.public_key().public_bytes_raw())
    assert card.formal["decision"] == "feasible"
    assert 0.07 < card.formal["calibration"]["level"] < 0.08
    assert Budget(1.0, 1e-5).allows(Profile().then(TRAINING, Pure(QUANTILE.epsilon)))
    assert "guaranteed" in headline(card)
    assert "Its privacy profile" in as_markdown(card, [])
    assert "<svg" in as_html(card, [])


def test_every_edit_of_a_full_data_card_is_caught(card: Card) -> None:
    """Change any one field: the signature no longer holds."""
    for place in edits(card.formal):
        try:
            found = parse_card(replace(card, formal=edited(card.formal, place)).to_json())
        except BadInput:
            continue
        assert not found.signature_holds, place


LIES: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "less delta at the deciding point": (
        ("profile",),
        lambda old: [p | {"delta": 0.9 * p["delta"]} for p in old],
        "profile/0",
    ),
    "more miss than the profile carries": (
        ("calibration", "miss"),
        lambda old: 1.01 * old,
        "calibration/miss",
    ),
    "a lower rank": (("calibration", "rank"), lambda old: old - 1, "calibration/rank"),
    "another level": (("calibration", "level"), lambda old: old + 1e-4, "calibration/level"),
    "less inflation": (
        ("calibration", "inflation_ranks"),
        lambda old: old - 1,
        "calibration/inflation_ranks",
    ),
    "more epsilon for the quantile": (("calibration", "epsilon"), lambda old: 2 * old, "total"),
    "less noise in training": (
        ("training", "noise_multiplier"),
        lambda old: 0.98 * old,
        "profile/0",
    ),
    "more steps": (("training", "steps"), lambda old: old + 100, "profile/0"),
    "a smaller total": (("total", "epsilon"), lambda old: 0.98 * old, "total"),
    "fewer clauses failed": (("flags", "rank"), lambda old: not old, "flags"),
    "another decision": (("decision",), lambda old: "infeasible", "decision"),
    "another budget": (("contract", "epsilon"), lambda old: 0.5, "flags"),
    "a part of the miss left out": (("contract", "beta"), lambda old: 0.03, "calibration/miss"),
    "more coverage": (("contract", "coverage"), lambda old: 0.95, "calibration/miss"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_signed_lie_about_full_data_is_named(lie: str, card: Card) -> None:
    """Signed again by a forger, the clause that the lie breaks is named."""
    place, change, clause = LIES[lie]
    formal = parse_card(card.to_json()).formal
    inner = formal
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = change(inner[place[-1]])
    found = broken(replace(card, formal=formal).sign(OTHER))
    assert clause in found
    assert "signature" not in found


def test_too_few_records_and_too_much_epsilon_make_infeasible_cards() -> None:
    """A rank beyond the records, or a total beyond the contract, is said on a card that
    verifies."""
    for contract, n, failed in (
        (CONTRACT, 12, "rank"),
        (replace(CONTRACT, epsilon=0.5), 10_000, "epsilon"),
    ):
        top = replace(RELEASED, threshold=1.0 if failed == "rank" else 0.75)
        card = made(contract, n=n, released=top)
        assert card.formal["decision"] == "infeasible"
        assert card.formal["failed"] == ([failed, "informative"] if failed == "rank" else [failed])
        assert not broken(card)


@pytest.mark.parametrize("steps", [(1.0, 0.01, 1000), (1.656, 0.0032, 15_650), (2.0, 1.0, 20)])
def test_two_computations_of_a_profile_agree(steps: tuple[float, float, int]) -> None:
    """The accountant's profile lies above the independent one, by at most half a percent, in both
    directions."""
    ours, other = Profile().then(SampledGaussian(*steps)), Training(*steps)
    for epsilon in (-0.5, 0.0, 0.3, 1.0):
        added = other.delta(epsilon, added=True)
        assert added * (1 - 1e-6) <= ours.delta_added(epsilon) <= 1.005 * added + 1e-9
        both = max(added, other.delta(epsilon, added=False))
        assert both * (1 - 1e-6) <= ours.delta(epsilon) <= 1.005 * both + 1e-9


def test_contracts_that_cannot_be_are_refused() -> None:
    """Beta beyond the miss, or a quantile made for other terms, is refused with the reason."""
    with pytest.raises(BadInput, match="below 1 - coverage"):
        replace(CONTRACT, beta=0.2)
    with pytest.raises(BadInput, match="the quantile is for replace-one"):
        full_data_formal(
            CONTRACT, TRAINING, replace(QUANTILE, adjacency="replace-one"), n=100, released=RELEASED
        )
