"""Rounds that small owners can answer, and what cards say of the owners that they leave out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.bits import procedure as bits
from confide.protocol.cards.card import Card
from confide.protocol.cards.page import card_article
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import in_words
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SeededEntropy
from confide.protocol.methods.bit_rounds import SCHEDULES, rounds_for
from confide.protocol.methods.bits import BitTerms
from tests.support.cards.cards import KEY, broken
from tests.support.owners.owners import NOW, PLAN, POLICY, asking, changed, owner, signed
from tests.support.truth.bit_tallies import POPULATIONS, campaign
from tests.support.truth.known import assert_rate_at_most

SIZES = (2_500, 2_500, 220, 220)


@pytest.mark.parametrize(("least", "rounds"), SCHEDULES)
def test_the_smallest_owner_answers_every_round(least: int, rounds: Any) -> None:
    """Its slices hold thirty records on average; the shares are those of all records."""
    assert rounds_for(least) == rounds_for(least + 1) == rounds
    assert min(*rounds.search, *rounds.stages) * least >= 30 - 1e-9
    assert sum(rounds.search) + sum(rounds.stages) == pytest.approx(1.0)
    assert rounds_for(0) == SCHEDULES[0][1]


def test_owners_too_small_for_several_rounds_are_refused() -> None:
    with pytest.raises(BadInput, match="smallest-owner is 119; accepted is 0, or 120 or more"):
        BitTerms(variant="certified", epsilon=1.0, delta=0.1, smallest_owner=119)


@pytest.mark.parametrize("least", [least for least, _ in SCHEDULES[1:]])
def test_fewer_rounds_keep_the_promise(least: int) -> None:
    """On the plateau a hair below the target, at most delta of 80 campaigns cover too little."""
    channel, curve = Bit(epsilon=4.0), POPULATIONS["plateau"]
    failures = below_1 = 0
    for seed in range(80):
        made = bits.certified(channel=channel, alpha=0.1, delta=0.1, n=5_000, smallest_owner=least)
        found = campaign(made, curve, n=5_000, seed=[seed, least]).threshold
        failures += bool(curve(np.array(found)) < 0.9) and found < 1
        below_1 += found < 1
    assert below_1 > 70
    assert_rate_at_most(failures, 80, 0.1)


def answered(folder: Path, smallest_owner: int) -> Card:
    """The card of two large and two small owners, whose policies ask for slices of 20 records."""
    plan = changed(
        PLAN, smallest_owner=smallest_owner, expected_records=sum(SIZES), minimum_owners=4
    )
    policy = replace(POLICY, minimum_group=20)
    folder.mkdir()
    made = [
        owner(folder / str(i), seed=i, n=n, policy=policy, entropy=SeededEntropy("small", i))
        for i, n in enumerate(SIZES)
    ]
    outcome = run_campaign(plan, asking(signed(plan), made))
    seen = replace(outcome, certificate=replace(outcome.certificate, randomness=OPERATING_SYSTEM))
    return campaign_card(plan, seen, diagnostic={}, issued=NOW).sign(KEY)


def test_small_owners_count_where_rounds_are_made_for_them(tmp_path: Path) -> None:
    """In eight rounds two owners of 220 records are left out of the small ones, and the card says
    of how many; in the five rounds of owners of 200, all of their records answer."""
    usual, made_for = answered(tmp_path / "usual", 0), answered(tmp_path / "small", 200)
    for card in (usual, made_for):
        assert broken(card) == []
    left_out = [one["too_few"] for one in usual.provenance["contributors"]["rounds"]]
    assert left_out[0] == 2
    assert usual.formal["certificate"]["n"] < sum(SIZES)
    assert usual.provenance["received"]["GROUP_TOO_SMALL"] == sum(left_out)
    assert "left out up to 2 owners with too few records" in str(in_words(usual, verify(usual)))
    assert "2 left out, with too few records in the slice" in card_article(usual, verify(usual))
    rounds = made_for.provenance["contributors"]["rounds"]
    assert [one["too_few"] for one in rounds] == [0] * len(rounds)
    assert [one["owners"] for one in rounds] == [4] * len(rounds)
    assert made_for.formal["certificate"]["smallest_owner"] == 200


def test_what_a_card_says_of_its_rounds_is_held_to_what_it_tested(tmp_path: Path) -> None:
    """Reports moved from a round to another, more owners than contributed, more expected than
    planned, and another smallest owner than the plan's: each is named."""
    card = answered(tmp_path / "card", 200)
    place = "provenance/contributors/rounds"

    def told(number: int, **changes: int) -> list[str]:
        counted = card.provenance["contributors"]
        rounds = [dict(one) for one in counted["rounds"]]
        for name, more in changes.items():
            rounds[number][name] += more
        origin = card.provenance | {"contributors": counted | {"rounds": rounds}}
        return broken(replace(card, provenance=origin).sign(KEY))

    assert told(1, reports=1) == [f"{place}/reports", f"{place}/stages"]
    assert told(0, owners=1) == [f"{place}/0/owners"]
    assert told(0, owners=-4) == [f"{place}/0/owners"]
    assert told(0, expected=1_000) == [f"{place}/expected"]
    certificate = {k: v for k, v in card.formal["certificate"].items() if k != "smallest_owner"}
    lie = replace(card, formal=card.formal | {"certificate": certificate}).sign(KEY)
    assert "certificate/smallest_owner" in broken(lie)
