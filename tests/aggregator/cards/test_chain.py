"""A chain: owners train a model, calibrate that very file on other records, and one card says what
both cost."""

import hashlib
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from confide.aggregator.campaigns.driver import run_training
from confide.aggregator.cards.issue import campaign_card
from confide.client.ledger.ledger import Ledger
from confide.client.respond import Respondent
from confide.protocol.cards.verify.chain import replaced_epsilon
from confide.protocol.chain_cost import ChainCost
from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.plan import Plan, digest, write_query
from confide.protocol.privacy.renyi import training_epsilon
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from tests.support.cards.cards import broken, edited, edits
from tests.support.cards.chained_cards import chained_card
from tests.support.owners.owners import KEY, NOW, signed
from tests.support.training.trained_chain import (
    ALLOWS,
    BITS,
    COUNTS,
    OWNERS,
    SPLIT,
    TRAINS,
    N,
    asked,
    chain,
    owner,
)


@pytest.mark.parametrize("method", ["bits", "central"])
def test_one_card_has_both_costs(method: str) -> None:
    """It verifies, names the trained file, and charges every record for one of the two."""
    card = chained_card(method)
    assert broken(card) == []
    found = card.formal["chain"]
    assert found["epsilon_train"] <= 4.0
    assert found["epsilon"] == max(found["epsilon_train"], found["epsilon_calibration"])
    assert card.formal["released"]["model"] == hashlib.sha256(chain().model).hexdigest()


@pytest.mark.parametrize("same", [(1.0, 2.0), ()])
def test_a_card_says_what_the_whole_chain_costs(same: tuple[float, ...]) -> None:
    """Records that trained pay for that and for every calibration on them, the others for the other
    calibrations; the larger sum stands on every card. A card that leaves one out fails."""
    others = (COUNTS.epsilon, 4.0, 1.5)
    costs = tuple(
        ChainCost(name, epsilon, 0.0)
        for name, given in {"central:trusted": others, "full-data:certified": same}.items()
        for epsilon in given
    )
    plan = chain().plan(COUNTS, chain=costs)
    assert Plan.from_bytes(plan.to_bytes()) == plan
    outcome = chain().outcome(plan)
    card = campaign_card(plan, outcome, diagnostic={}, issued=NOW, training=TRAINS).sign(KEY)
    assert broken(card) == []
    found = card.formal["chain"]
    trains = found["epsilon_train"]
    assert found["epsilon"] == max(trains + sum(same), sum(others))
    assert [one["epsilon"] for one in found["calibrations"]] == [*others, *same]
    less = card.formal | {
        "chain": found | {"calibrations": found["calibrations"][:1], "epsilon": trains}
    }
    assert broken(replace(card, formal=less).sign(KEY)) == ["chain/calibrations", "chain/epsilon"]


@pytest.mark.parametrize(
    "costs",
    [
        (ChainCost("bits:certified", 1.0, 0.0),),
        (ChainCost("central:trusted", 1.0, 0.0), ChainCost("nothing:known", 1.0, 0.0)),
        (ChainCost("central:trusted", 1.0, 0.0), ChainCost("bits:certified", 0.0, 0.0)),
        (ChainCost("central:trusted", 1.0, 0.0), ChainCost("bits:certified", math.nan, 0.0)),
        (ChainCost("central:trusted", 1.0, 0.0), ChainCost("bits:certified", 1.0, 1.0)),
        (ChainCost("central:trusted", 1.0, 0.0),) * 101,
    ],
)
def test_costs_of_a_chain_that_are_not_its_own_are_refused(costs: tuple[ChainCost, ...]) -> None:
    with pytest.raises(BadInput, match="chain"):
        chain().plan(COUNTS, chain=costs)
    with pytest.raises(BadInput, match="of one training"):
        replace(TRAINS, chain=(TRAINS.cost,))


def test_shares_are_disjoint_and_every_record_pays_once() -> None:
    """The ledger of each owner: all records were charged, none for both campaigns."""
    chained_card("bits")
    for seed in range(1, OWNERS + 1):
        ledger = Ledger(chain().folder / f"{seed}.sqlite")
        spent = {row.campaign: row.records for row in ledger.campaigns()}
        assert spent[TRAINS.campaign] + spent["bits of a trained model"] == N
        assert abs(spent[TRAINS.campaign] - SPLIT * N) < 60
        # Other tests calibrate the same chain, so the two campaigns are looked up by name.
        with closing(sqlite3.connect(chain().folder / f"{seed}.sqlite")) as file:
            charged = (
                "SELECT s.record FROM spends s JOIN plans p ON s.plan = p.id WHERE campaign = ?"
            )
            trained, calibrated = (
                set(file.execute(charged, (name,)))
                for name in (TRAINS.campaign, "bits of a trained model")
            )
        assert trained
        assert trained.isdisjoint(calibrated)


@pytest.mark.parametrize("method", ["bits", "central"])
def test_a_card_that_says_anything_else_about_the_training_fails(method: str) -> None:
    """Every field of the layer, changed alone and signed again."""
    card = chained_card(method)
    for place in edits(card.formal["chain"]):
        lie = edited(card.formal, ("chain", *place))
        if place == ("epsilon_train",):
            lie["chain"]["epsilon_train"] = card.formal["chain"]["epsilon_train"] * 0.99
        assert broken(replace(card, formal=lie).sign(KEY)), place
    without = {name: value for name, value in card.formal.items() if name != "chain"}
    assert broken(replace(card, formal=without).sign(KEY)) == ["chain"]


def test_another_training_is_not_the_cards() -> None:
    other = replace(TRAINS, campaign="another")
    card = chained_card("central")
    lie = card.formal | {"chain": card.formal["chain"] | {"training": other.to_bytes().hex()}}
    assert "chain/training" in broken(replace(card, formal=lie).sign(KEY))
    plan = chain().plan(COUNTS)
    outcome = chain().outcome(plan)
    for given in (None, other):
        with pytest.raises(BadInput, match="comes from the training"):
            campaign_card(plan, outcome, diagnostic={}, issued=NOW, training=given)


@pytest.mark.parametrize("share", [(), (0.5, 1.0), (0.0, 0.1)])
def test_no_card_promises_coverage_of_records_that_trained(share: tuple[float, ...]) -> None:
    """Their scores are not those of new records."""
    plan = chain().plan(COUNTS, share=share)
    outcome = replace(chain().outcome(chain().plan(COUNTS)), contributors=OWNERS)
    with pytest.raises(BadInput, match="shares without a common record"):
        campaign_card(plan, outcome, diagnostic={}, issued=NOW, training=TRAINS)


def code(one: Respondent, plan: Plan) -> int:
    procedure = plan.terms.read_query(
        wire.BitQuery(start=0, stop=1, thresholds=[0.5]).SerializeToString(), labels=plan.labels
    )
    query = write_query(procedure, plan=digest(plan.to_bytes()), round_=0)
    return parse(wire.Answer, one.answer(signed(plan), query)).code


def test_a_trained_model_is_used_only_by_owners_that_allow_it_and_took_part(
    tmp_path: Path,
) -> None:
    """Not by one whose policy says no, nor by one that knows nothing of the training, nor if the
    file is not the one that the plan names."""
    plan = replace(chain().plan(BITS), campaign="again")
    refused = replace(ALLOWS, trained_models=False)
    assert code(chain().owners(refused)[0], plan) == wire.Code.MODEL_NOT_ALLOWED
    assert code(owner(tmp_path, 9, ALLOWS, chain().model), plan) == wire.Code.MODEL_NOT_ALLOWED
    nowhere = replace(plan, training=bytes(32))
    assert code(chain().owners()[0], nowhere) == wire.Code.MODEL_NOT_ALLOWED
    other = replace(plan, model=bytes(32))
    assert code(chain().owners()[0], other) == wire.Code.MODEL_NOT_ALLOWED
    listed = replace(refused, models=frozenset({plan.model}))
    assert code(owner(tmp_path, 8, listed, chain().model), plan) == wire.Code.OK


def test_a_training_has_no_training_of_its_own() -> None:
    """Its records would be split by that one's name, and its calibrations' by its own: a record
    could be in both, and the card would say that none is."""
    with pytest.raises(BadInput, match="a plan of training names the training"):
        replace(TRAINS, training=bytes(32))
    written = wire.Plan.FromString(TRAINS.to_bytes())
    written.training = bytes(32)
    with pytest.raises(Refused):
        Plan.from_bytes(written.SerializeToString())


def test_records_that_get_persons_after_a_training_do_not_calibrate_too(tmp_path: Path) -> None:
    """Their positions are those of the persons from then on; the ledger knows who trained."""
    first = owner(tmp_path, 1, ALLOWS)
    run_training(TRAINS, asked(TRAINS, [first]))
    later = owner(
        tmp_path,
        1,
        ALLOWS,
        chain().model,
        persons=tuple(f"person {i // 2}".encode() for i in range(N)),
    )
    later.admit(new=False)
    assert code(later, chain().plan(BITS)) == wire.Code.OK
    ledger = Ledger(tmp_path / "1.sqlite")
    trained = ledger.charged(digest(TRAINS.to_bytes()))
    calibrated = ledger.charged(digest(chain().plan(BITS).to_bytes()))
    assert trained
    assert calibrated
    assert trained.isdisjoint(calibrated)


def test_probabilities_of_an_unlisted_model_never_leave_in_clear() -> None:
    """The aggregator alone knows that a file is what was trained; another one may spell out
    features."""
    labels = LabelTerms(variant="certified", channel="k-rr", epsilon=4.0, delta=0.1)
    plan = chain().plan(labels)
    shown = replace(ALLOWS, methods=frozenset({"labels"}), probabilities_may_leave=True)
    assert shown.refusals(plan) == [wire.Code.MODEL_NOT_ALLOWED]
    assert replace(shown, models=frozenset({plan.model})).refusals(plan) == []


def test_epsilon_of_a_training_is_computed_twice_alike() -> None:
    """By the code that plans trainings and by the verifier's."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        given = {
            "rate": float(rng.choice([1.0, rng.uniform(1e-4, 1)])),
            "noise": float(rng.uniform(0.5, 20)),
            "steps": int(rng.integers(1, 1000)),
            "delta": 10.0 ** -float(rng.uniform(3, 9)),
        }
        planned = training_epsilon(
            noise_multiplier=given["noise"],
            sampling_rate=given["rate"],
            steps=given["steps"],
            delta=given["delta"],
        )
        assert replaced_epsilon(**given) == pytest.approx(planned, rel=1e-6)
