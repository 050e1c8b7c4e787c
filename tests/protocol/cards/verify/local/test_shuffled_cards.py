"""What a card may say of shuffling, and every lie about it."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from confide.protocol.cards.card import Card, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.verify.local.shuffled import shuffled
from confide.protocol.errors import BadInput
from confide.protocol.privacy.amplification import shuffled_epsilon
from confide.protocol.shuffling import MOST_CROWD, Handover
from tests.support.cards.campaign_cards import forged, issued
from tests.support.cards.cards import KEY, campaign
from tests.support.cards.shuffled_cards import ONE_SHOT, handed_over, shuffled_card
from tests.support.cards.shuffled_plans import SHUFFLER, SHUFFLING
from tests.support.owners.owners import changed

CARD = shuffled_card()


def broken(card: Card) -> list[str]:
    return [one.clause for one in verify(parse_card(card.to_json())) if not one.holds]


def test_the_card_of_the_example_has_the_bound_of_its_whole_round() -> None:
    """One-shot bits at epsilon 4, 23,640 reports, delta 1e-6: 0.257 and not 3.99999; lies and what
    did not open make the crowd smaller, and the card still verifies."""
    card = shuffled_card(23_640)
    assert broken(card) == []
    assert card.formal["certificate"]["epsilon"] > 3.99
    assert round(card.formal["shuffle"]["epsilon"], 3) == 0.257
    fewer = shuffled_card(6_000, max_corrupt=50, unopened=10)
    assert broken(fewer) == []
    assert fewer.formal["shuffle"]["n"] == 5_950
    assert fewer.formal["shuffle"]["epsilon"] == shuffled_epsilon(
        local_epsilon=fewer.formal["certificate"]["epsilon"], n=5_950, delta=1e-6
    )
    assert fewer.provenance["contributors"]["of"] == 6_010


@pytest.mark.parametrize(
    ("max_corrupt", "left", "warned"),
    [(0, 1_200, True), (799, 1_200, True), (800, 1_200, False), (900, 1_100, False)],
)
def test_reports_that_did_not_open_make_the_plans_crowd_smaller(
    max_corrupt: int, left: int, warned: bool
) -> None:
    """A crowd of 2,000, of which 800 of a round did not open: crowd_epsilon is that of 1,200, or of
    fewer if more lies were planned for; the card warns of more of them than were."""
    card = shuffled_card(60_000, max_corrupt=max_corrupt, unopened=800, crowd=2_000)
    shuffle, local = card.formal["shuffle"], card.formal["certificate"]["epsilon"]
    assert broken(card) == []
    assert shuffle["crowd_epsilon"] == amplified(local, left)
    assert ("warning" in shuffle) == warned


def amplified(local: float, n: int) -> float:
    return shuffled_epsilon(local_epsilon=local, n=n, delta=1e-6)


def test_what_did_not_open_cannot_be_kept_quiet() -> None:
    """The epsilon of the whole crowd, a card without its warning, and one with a needless warning
    fail by name."""
    card = shuffled_card(6_000, unopened=800, crowd=2_000)
    whole = amplified(card.formal["certificate"]["epsilon"], 2_000)
    assert broken(forged(card, (("shuffle", "crowd_epsilon"), whole))) == ["shuffle/crowd_epsilon"]
    silent = {name: value for name, value in card.formal["shuffle"].items() if name != "warning"}
    assert broken(forged(card, (("shuffle",), silent))) == ["shuffle/warning"]
    warning = card.formal["shuffle"]["warning"]
    assert broken(forged(CARD, (("shuffle", "warning"), warning))) == ["shuffle/warning"]


def test_the_worst_round_decides_for_the_rounds_that_are_not_shown() -> None:
    """Of two rounds the one with more reports that did not open, wherever it stands."""
    plan = changed(ONE_SHOT, variant="certified", shuffling=replace(SHUFFLING, crowd=2_000))
    for unopened in ([0, 800], [800, 0]):
        card = issued(plan, handed_over(plan, [3_000, 3_000], unopened=unopened))
        assert broken(card) == []
        shuffle, local = card.formal["shuffle"], card.formal["certificate"]["epsilon"]
        assert shuffle["crowd_epsilon"] == amplified(local, 1_200)


def test_a_round_above_the_most_that_is_mixed_says_no_smaller_epsilon() -> None:
    """A few reports more than the maximum came before the round was closed. The verifier is asked
    for that number alone: the divergence of so large a crowd takes it twenty seconds."""
    card = parse_card(shuffled_card(MOST_CROWD + 5).to_json())
    assert card.formal["shuffle"]["n"] == MOST_CROWD

    def holds(one: Card) -> bool:
        clauses = shuffled(one.formal, hidden=True)
        return next(found.holds for found in clauses if found.clause == "shuffle/n")

    assert holds(card)
    assert not holds(forged(card, (("shuffle", "n"), MOST_CROWD - 1)))


ROUND = ("shuffle", "rounds", 0)


@pytest.mark.parametrize(
    ("place", "value", "clause"),
    [
        (("shuffle", "epsilon"), 0.2, "shuffle/epsilon"),
        (("shuffle", "crowd_epsilon"), 0.4, "shuffle/crowd_epsilon"),
        (("shuffle", "delta"), 1e-5, "shuffle"),
        (("shuffle", "n"), 7_000, "shuffle/n"),
        (("shuffle", "crowd"), 99, "shuffle/crowd"),
        (("shuffle", "shuffler"), "ab" * 32, "shuffle/shuffler"),
        ((*ROUND, "reports"), 6_001, "shuffle/rounds/0/signature"),
        ((*ROUND, "opened"), 6_001, "shuffle/rounds/0/reports"),
        ((*ROUND, "opened"), 5_999, "certificate/n"),
        ((*ROUND, "digest"), "cd" * 32, "shuffle/rounds/0/signature"),
        ((*ROUND, "owners"), 5, "shuffle/rounds/0/signature"),
        ((*ROUND, "largest"), 5, "shuffle/rounds/0/signature"),
        ((*ROUND, "signature"), "ef" * 64, "shuffle/rounds/0/signature"),
    ],
)
def test_a_lie_about_shuffling_fails_by_name(
    place: tuple[Any, ...], value: Any, clause: str
) -> None:
    """Signed by the aggregator itself, which cannot speak for the shuffler, or choose epsilon."""
    assert broken(CARD) == []
    assert clause in broken(forged(CARD, (place, value)))


def test_a_round_smaller_than_the_crowd_is_no_crowd() -> None:
    """Even the shuffler cannot hand over fewer reports than the plan promised to owners."""
    card = shuffled_card(99)
    assert "shuffle/rounds/0/reports" in broken(card)


def test_a_signature_for_another_round_or_campaign_is_none() -> None:
    """What the shuffler signed elsewhere, with the same numbers, vouches for nothing here."""
    shown = CARD.formal["shuffle"]["rounds"][0]
    numbers = shown["reports"], bytes.fromhex(shown["digest"]), shown["owners"], shown["largest"]
    plan = bytes.fromhex(CARD.provenance["plan"])
    for other in (Handover(plan, 1, *numbers), Handover(bytes(32), 0, *numbers)):
        signature = other.sign(SHUFFLER).signature.hex()
        assert broken(forged(CARD, ((*ROUND, "signature"), signature))) == [
            "shuffle/rounds/0/signature"
        ]


def test_contributors_are_those_that_the_shuffler_signed() -> None:
    """The aggregator does not know who sent, so it cannot say other numbers."""
    origin = copy.deepcopy(CARD.provenance)
    said = f"({origin['contributors']['largest']} of"
    origin["contributors"] |= {"owners": 9, "largest": 1_000}
    lie = origin["contributors"]["if_the_largest_lied"]
    origin["contributors"]["if_the_largest_lied"] = lie.replace(said, "(1000 of")
    found = broken(replace(CARD, provenance=origin).sign(KEY))
    assert found == ["provenance/contributors/owners", "provenance/contributors/largest"]


def test_without_a_shuffler_nothing_is_claimed(tmp_path: Path) -> None:
    """A number on the card of a campaign whose plan names no shuffler, or of labels, fails; a free
    text is no amplification."""
    none = campaign(tmp_path)
    words = "none: reports did not go through a shuffler"
    assert none.formal["shuffle"] == {"amplification": words}
    assert broken(none) == []
    assert broken(forged(none, (("shuffle",), CARD.formal["shuffle"])))[0] == "shuffle"
    labels = campaign(tmp_path / "labels", method="labels", variant="certified")
    assert broken(labels) == []
    assert broken(forged(labels, (("shuffle",), CARD.formal["shuffle"])))[0] == "shuffle"
    assert broken(forged(labels, (("shuffle",), none.formal["shuffle"]))) == ["shuffle"]
    with pytest.raises(BadInput, match="accepted"):
        broken(forged(none, (("shuffle",), {"amplification": "epsilon 0.01 by shuffling"})))
