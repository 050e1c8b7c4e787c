"""Campaigns that calibrate a model on the records that trained it: what their cards say."""

import json
from dataclasses import replace

import pytest

from confide.aggregator.cards.full_data_campaign import full_data_campaign_formal
from confide.aggregator.cards.issue import campaign_card
from confide.client.explain import explain
from confide.client.ledger.ledger import Ledger
from confide.protocol.cards.card import parse_card
from confide.protocol.cards.page import as_html, as_markdown
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.verify.chain import added_epsilon
from confide.protocol.cards.words.in_words import headline, in_words
from confide.protocol.certificate import PAIRS
from confide.protocol.errors import BadInput
from confide.protocol.methods.counts.full_data import VARIANTS
from confide.protocol.methods.counts.queries import HistogramQuery
from confide.protocol.plan import digest, write_query
from confide.protocol.privacy.renyi import training_epsilon
from confide.protocol.wire import wire_pb2 as wire
from tests.support.cards.cards import broken, edited, edits
from tests.support.cards.chained_cards import BINS, EPSILON, card_of, plan_of, terms
from tests.support.owners.owners import KEY, NOW
from tests.support.training.trained_chain import ALLOWS, OWNERS, TRAINS, asked, chain


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_ends_in_a_card_that_verifies(variant: str) -> None:
    """It can be written and read, has both costs and their sum, and is shown."""
    card = card_of(variant)
    assert broken(card) == []
    assert broken(parse_card(card.to_json())) == []
    found = card.formal["chain"]
    assert found["epsilon"] == found["epsilon_train"] + found["epsilon_calibration"]
    assert card.formal["total"]["epsilon"] == found["epsilon"]
    assert found["delta"] == found["delta_train"] + found["delta_calibration"]
    assert card.formal["calibration"]["owners"] == OWNERS
    for page in (as_html(card, verify(card)), as_markdown(card, [])):
        assert "pay for both" in page


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_first_page_counts_records(variant: str) -> None:
    """Owners contributed records, as the sentence on what the largest could do says, too."""
    card = card_of(variant)
    counted = card.provenance["contributors"]
    took_part = dict(in_words(card, verify(card)).rows)["Took part"]
    assert took_part.startswith(f"{OWNERS:,} owners with {counted['of']:,} records; ")
    assert f"of {counted['of']} records) lied" in counted["if_the_largest_lied"]


def test_only_the_certified_rule_promises_the_target() -> None:
    """What the others know stands on their cards; their contracts are not kept."""
    known = {name: card_of(name).formal["promise"] for name in VARIANTS}
    for name, promise in known.items():
        certified = name.startswith("certified")
        decision = card_of(name).formal["decision"]
        assert (promise["status"] == "certified") == certified == (decision == "feasible")
        assert PAIRS in promise["assumptions"]
    assert known["dpcp"]["status"] == "conditional on assumptions"
    assert "conditional on assumptions" in headline(card_of("dpcp"))
    assert (known["scp-a"]["status"], known["scp-a"]["level"]) == ("asymptotic only", None)
    floors = known["scp-f"]
    assert floors["buffer_is"] == "heuristic buffer"
    assert 0.7 < floors["level"] == floors["black_box_floor"] < 0.9
    assert floors["never_selected_bound"] == 0.0


def test_the_certified_rank_is_above_the_nominal_one() -> None:
    """By what the training may have remembered of its records."""
    exact, nominal = (card_of(name).formal["calibration"] for name in ("certified", "scp-a"))
    assert exact["n"] == nominal["n"]
    assert exact["rank"] > nominal["rank"] + 10
    assert 0.03 < exact["miss"] < 0.06


@pytest.mark.parametrize("variant", ["certified", "certified-owner-noised", "dpcp", "scp-f"])
def test_every_lie_of_a_card_is_caught(variant: str) -> None:
    """Every field of the formal layer, changed alone and signed again."""
    card = card_of(variant)
    for place in edits(card.formal):
        lie = edited(card.formal, place)
        if place[0] == "profile" and place[2] == "epsilon":
            # A smaller epsilon has a larger delta; a larger one would be another true point.
            lie["profile"][place[1]]["epsilon"] = card.formal["profile"][place[1]]["epsilon"] - 0.01
        if place == ("calibration", "owners") and VARIANTS[variant].noised_by_owners is False:
            # More owners than contributed may have answered, with no record; nothing rests on it.
            lie["calibration"]["owners"] = OWNERS - 1
        assert broken(replace(card, formal=lie).sign(KEY)), place


def test_a_profile_of_less_noise_than_the_training_had_is_caught() -> None:
    """A consistent forgery: rank, level and points of a training with four times the noise."""
    strong = replace(plan_of("certified"), terms=terms("certified", training_noise=40.0))
    outcome = chain().outcome(plan_of("certified"))
    honest = card_of("certified")
    forged = full_data_campaign_formal(strong, outcome) | {"chain": honest.formal["chain"]}
    assert "plan/training_noise" in broken(replace(honest, formal=forged).sign(KEY))
    mixed = forged | {name: honest.formal[name] for name in ("plan", "training")}
    found = broken(replace(honest, formal=mixed).sign(KEY))
    assert any(name.startswith("profile/") for name in found)


def test_a_calibration_of_other_records_is_no_full_data() -> None:
    """Neither a part of the training's records nor the rest; and the training must be named."""
    outcome = chain().outcome(plan_of("certified"))
    for share in ((), (0.0, 0.5), (0.6, 1.0)):
        with pytest.raises(BadInput, match="the training's share"):
            campaign_card(
                plan_of("certified", share=share),
                outcome,
                diagnostic={},
                issued=NOW,
                training=TRAINS,
            )
    with pytest.raises(BadInput, match="names no training"):
        plan_of("certified", training=b"")


def test_records_pay_for_both_and_are_those_that_trained() -> None:
    """The ledgers: exactly the records of the training were charged, and the charges add up."""
    card_of("certified")
    for seed in range(1, OWNERS + 1):
        ledger = Ledger(chain().folder / f"{seed}.sqlite")
        plans = {row.campaign: row.records for row in ledger.campaigns()}
        assert plans["full-data certified"] == plans[TRAINS.campaign]
        assert ledger.spent_by_record()[1] >= TRAINS.epsilon + EPSILON
        ledger.close()


def test_a_policy_bounds_the_sum() -> None:
    """An owner that allows what the training cost and nothing more declines to calibrate on it."""
    plan = plan_of("certified", campaign="beyond the budget")
    tight = replace(ALLOWS, epsilon_per_record=TRAINS.epsilon + 0.5)
    query = write_query(HistogramQuery(BINS), plan=digest(plan.to_bytes()), round_=0)
    for sent in asked(plan, chain().owners(tight))(query):
        assert wire.Answer.FromString(sent.answer).code == wire.Code.ALREADY_SPENT


def test_an_owner_is_told_that_both_are_paid_by_the_same_records() -> None:
    """The sum stands in the explanation, and a policy that lists counts only does not allow it."""
    plan = plan_of("certified")
    said = " ".join(explain(plan, ALLOWS).split())
    both = terms("certified").training_epsilon + EPSILON
    assert "asks the records that trained the model" in said
    assert f"They pay for both: epsilon {both:.4f} together" in said
    assert said.endswith("this plan is allowed.")
    counts = replace(ALLOWS, methods=frozenset({"central", "training"}))
    assert "its method is not among `methods`" in explain(plan, counts)


def test_dpcps_epsilon_is_computed_twice_alike() -> None:
    """When one record is added: by the code that plans and by the verifier's."""
    planned = training_epsilon(
        noise_multiplier=3.0, sampling_rate=0.3, steps=70, delta=1e-5, adjacency="add-remove"
    )
    assert added_epsilon(noise=3.0, rate=0.3, steps=70, delta=1e-5) == pytest.approx(planned)
    assert json.loads(card_of("dpcp").to_json())["formal"]["profile"][0]["delta"] == 1e-5
