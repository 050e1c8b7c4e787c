"""Cards of campaigns by group, and of counts by class: verification, lies, words, prediction.

Owners answer in bytes, with the ward of every record in clear.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.protocol.cards.card import Card, strata_of
from confide.protocol.cards.page import as_html
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.promise_words import promise
from confide.protocol.certificate import DROPOUTS, IID_PARTS, MIXTURE
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.privacy.zcdp import search_variance
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import serialise
from tests.support.cards.calibrated import calibrated_card
from tests.support.cards.campaign_cards import forged
from tests.support.cards.cards import KEY, broken
from tests.support.cards.central import BINS, OPEN_POLICY
from tests.support.cards.group_cards import PLANS, group_card
from tests.support.cards.left_out import without_stage
from tests.support.owners.owners import NOW, WARDS, K, asking, changed, owner
from tests.support.owners.owners import signed as signed_plan
from tests.support.truth.known import label_population

PUBLIC = KEY.public_key().public_bytes_raw()
LOCAL = [name for name in PLANS if ":" in name]
CENTRAL = [name for name in PLANS if ":" not in name]


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    """A card of every kind; the third ward has too few reports for the floor of local methods."""
    folder = tmp_path_factory.mktemp("groups")
    return {name: group_card(plan, folder / str(i)) for i, (name, plan) in enumerate(PLANS.items())}


def parts(card: Card) -> list[dict[str, Any]]:
    strata = strata_of(card.formal)
    assert strata is not None
    return list(strata["parts"])


@pytest.mark.parametrize("name", PLANS)
def test_an_honest_card_verifies_and_shows_every_part(cards: dict[str, Card], name: str) -> None:
    """Parts are those of the plan, in its order, and the page has a row for each."""
    card = cards[name]
    assert broken(card, key=PUBLIC) == []
    names = [part["name"] for part in parts(card)]
    assert names == ([*map(str, range(K))] if name.endswith("class") else [*WARDS])
    assert min(part["threshold"] for part in parts(card)) < 1
    page = as_html(card, verify(card, key=PUBLIC))
    by = "class" if name.endswith("class") else "group"
    assert all(f">{by} {one}<" in page for one in names)
    assert "the promise is for all records together" not in page
    assert f"The threshold of each {by}; the line is the largest." in page
    # Groups are no owners: of these a card says how much they reported, and nothing of coverage.
    rows = card.diagnostic.get("owners", [])
    assert [row["owner"] for row in rows] == (["1", "2", "3"] if name in LOCAL else [])
    assert all(row.keys() == {"owner", "reports"} for row in rows)


@pytest.mark.parametrize("name", LOCAL)
def test_a_small_group_is_named_with_the_reason(cards: dict[str, Card], name: str) -> None:
    """The plan's floor leaves it out, and a card that covers it all the same does not verify."""
    small = parts(cards[name])[2]
    assert (small["name"], small["threshold"], small["covered"]) == ("west", 1.0, False)
    assert "the plan asks for 900 of a group" in small["reason"]
    place = ("certificate", "strata", "parts")
    told = {one: value for one, value in small.items() if one != "covered"}
    lie = forged(cards[name], ((*place, 2), told))
    assert "certificate/strata/parts/2/covered" in broken(lie)
    said = promise(cards[name].formal | {"decision": "feasible"})
    if name.endswith("per-group"):
        assert "each group, on its own, not jointly," in said
    else:
        assert "At every group that is covered, 2 of 3" in said
        assert "Not covered, for too few reports: group west." in said


@pytest.mark.parametrize("name", LOCAL)
def test_lies_about_a_group_are_named(cards: dict[str, Card], name: str) -> None:
    """A lower threshold, groups in another order or under another name, a delta that is not its."""
    card, place = cards[name], ("certificate", "strata", "parts")
    high = max((0, 1), key=lambda i: float(parts(card)[i]["threshold"]))
    named = f"certificate/strata/parts/{high}"
    assert f"{named}/threshold" in broken(forged(card, ((*place, high, "threshold"), 0.01)))
    assert f"{named}/delta" in broken(forged(card, ((*place, high, "delta"), 0.05)))
    turned = [parts(card)[i] for i in (1, 0, 2)]
    assert "certificate/strata/names" in broken(forged(card, (place, turned)))
    renamed = forged(card, ((*place, 0, "name"), "east"))
    assert "certificate/strata/names" in broken(renamed)
    owners = forged(card, (("certificate", "strata", "by"), "owner"))
    assert "certificate/strata/by" in broken(owners)
    # How owners are mixed within a group does matter.
    assert MIXTURE in card.formal["certificate"]["assumptions"]
    mixed = forged(card, (("certificate", "assumptions"), [IID_PARTS, DROPOUTS]))
    assert "certificate/assumptions" in broken(mixed)
    more = forged(card, ((*place, 0, "n"), 6_000))
    assert "certificate/strata/n" in broken(more)


@pytest.mark.parametrize("variant", ["per-group", "for-every-group"])
@pytest.mark.parametrize("method", ["bits", "labels"])
def test_a_group_may_be_named_all(method: str, variant: str) -> None:
    """Only owners that are not kept apart stand together under that name."""
    results, truth = label_population(4_000, 4, np.random.default_rng(1), ties=False)
    groups = np.repeat(["all", "others"], 2_000)
    card = calibrated_card(results, truth, method=f"{method}:{variant}", groups=groups)
    assert [part.get("covered", True) for part in parts(card)] == [True, True]
    assert broken(card) == []


@pytest.mark.parametrize("name", ["central by group", "noised by group"])
def test_an_owner_whose_groups_do_not_add_up_is_refused(name: str, tmp_path: Path) -> None:
    """Records in no group, or more in groups than in all, count for nobody: the card verifies."""
    plan = PLANS[name]
    owners = [owner(tmp_path / str(i), seed=i, policy=OPEN_POLICY) for i in range(3)]
    signed, lies = signed_plan(plan), 0

    def ask(query: bytes) -> list[Sent]:
        nonlocal lies
        sent = asking(signed, owners)(query)
        message = wire.Answer.FromString(sent[1].answer)
        held = wire.Counts.FromString(message.batch.body)
        counts = np.frombuffer(held.counts, dtype="<i8").copy()
        # The first of noised counts is that of all records, the last of exact ones in no group.
        counts[0 if plan.variant == "owner-noised" else -1] += 1
        held.counts = counts.tobytes()
        message.batch.body = serialise(held)
        lies += 1
        return [sent[0], Sent(b"\1", serialise(message)), sent[2]]

    outcome = run_campaign(plan, ask)
    assert outcome.received == {"OK": 2 * lies, "OUT_OF_ALPHABET": lies}
    real = replace(outcome.certificate, randomness=OPERATING_SYSTEM)
    card = campaign_card(plan, replace(outcome, certificate=real), diagnostic={}, issued=NOW)
    assert broken(card.sign(KEY)) == []
    assert outcome.certificate.n == 4_000


@pytest.mark.parametrize("variant", ["per-group", "for-every-group"])
def test_the_stages_of_a_group_are_decided_again(cards: dict[str, Card], variant: str) -> None:
    """Their levels, and the answers still to come, follow from the group's own planned answers."""
    card, place = cards[f"bits:{variant}"], ("certificate", "strata", "parts", 0)
    assert parts(card)[0]["rungs"]
    for name, value in (("rest", 1), ("level", 0.09), ("ones", 0), ("level_after", 1.0)):
        old = parts(card)[0]["rungs"][0][name]
        lie = forged(card, ((*place, "rungs", 0, name), value if value != old else 0.5))
        assert any(one.startswith("certificate/strata/parts/0/rungs") for one in broken(lie)), name
    less = forged(card, ((*place, "n"), parts(card)[0]["n"] - 1))
    assert "certificate/strata/parts/0/n" in broken(less)
    first = parts(card)[0]["rungs"][0]
    many = first | {"n": 500_000, "ones": 499_000, "level_after": 1.0}
    lie = forged(card, ((*place, "rungs"), [many]), ((*place, "threshold"), first["threshold"]))
    assert "certificate/strata/parts/0/stages" in broken(lie)
    searched = broken(forged(card, ((*place, "reports", 0), 2_000)))
    assert any(one.startswith("certificate/strata/parts/0/rungs") for one in searched)


@pytest.mark.parametrize("name", CENTRAL)
def test_lies_about_counted_parts_are_named(cards: dict[str, Card], name: str) -> None:
    """A lower threshold, a bin that is not its, a part left out, an epsilon that is spent once and
    claimed twice."""
    card, place = cards[name], ("strata", "parts")
    low = forged(
        card,
        ((*place, 0, "threshold"), 0.01),
        (("released", "strata", "parts", 0, "threshold"), 0.01),
    )
    assert "strata/parts/0/threshold" in broken(low)
    both = forged(low, ((*place, 0, "bin"), 2))
    assert "strata/parts/0/threshold" in broken(both)
    fewer = forged(card, (place, parts(card)[1:]))
    assert "strata/names" in broken(fewer)
    assert "released/strata" in broken(fewer)
    shown = forged(card, (("released", "strata", "parts", 1, "threshold"), 0.5))
    assert "released/strata" in broken(shown)
    reasoned = forged(card, ((*place, 0, "reason"), "too few records"))
    assert "strata/parts/0/reason" in broken(reasoned)
    other = "group" if name.endswith("class") else "class"
    assert "strata/by" in broken(forged(card, (("strata", "by"), other)))
    moved = 1 if name.endswith("class") else 2
    assert "strata/moved" in broken(forged(card, (("strata", "moved"), moved)))
    half = forged(card, (("total", "epsilon"), 0.7))
    assert "total/epsilon" in broken(half)


@pytest.mark.parametrize("how", ["central", "noised"])
def test_a_card_that_tells_how_many_records_a_class_has_fails(
    cards: dict[str, Card], how: str
) -> None:
    """Numbers of records, ranks and inflations of a class are private; those of a group are not,
    and are recomputed. What a class costs is not what one threshold for all would."""
    card = cards[f"{how} by class"]
    for told in ("n", "rank", "inflation"):
        lie = forged(card, (("strata", "parts", 2, told), 1_200))
        assert f"strata/parts/2/{told}" in broken(lie)
    groups = cards[f"{how} by group"]
    for told in ("n", "rank", "inflation"):
        value = parts(groups)[1][told]
        assert value > 0
        lie = forged(groups, (("strata", "parts", 1, told), value + 1))
        assert any(clause.startswith("strata/") for clause in broken(lie))
    found = card.formal["searched"][0]
    if how == "central":
        whole = forged(card, (("searched", 0, "epsilon_calibration"), 2.0))
        assert "searched/0/epsilon_calibration" in broken(whole)
        return
    # The noise of a search for one threshold is too little for a record that moves two counts.
    assert found["moved"] == 2
    single = search_variance(bins=BINS, epsilon=4.0, delta=1e-6)
    assert single < found["noise_variance"]
    less = forged(card, (("searched", 0, "noise_variance"), single))
    assert {"searched/0/flags", "searched/0/noise_variance"} <= {*broken(less)}
    one = {name: value for name, value in found.items() if name != "moved"}
    assert "searched/0/moved" in broken(forged(card, (("searched", 0), one)))
    with pytest.raises(BadInput, match="18 counts with noise"):
        changed(PLANS["noised by class"], noise_variance=single)


@pytest.mark.parametrize("name", [name for name in PLANS if "for-every" not in name])
def test_records_are_predicted_with_the_threshold_of_their_part(
    cards: dict[str, Card], name: str
) -> None:
    """A group by the column of the records or by its name, a class by the label; without groups the
    largest threshold, which covers each of them."""
    predictor = Predictor.from_card(cards[name], key=PUBLIC)
    probs = np.random.default_rng(1).dirichlet(np.ones(K), 60).astype(np.float32)
    each = {part["name"]: part["threshold"] for part in parts(cards[name])}
    if name.endswith("class"):
        limits = np.array([*each.values()])
        assert np.array_equal(predictor.predict_set(probs), 1 - probs <= limits)
        with pytest.raises(BadInput, match="no group has a threshold"):
            predictor.predict_set(probs, groups=["north"] * 60)
        return
    wards = np.array(WARDS)[np.arange(60) % 3]
    found = predictor.predict_set(probs, groups=wards)
    for ward in WARDS:
        alone = Predictor.from_card(cards[name], key=PUBLIC, part=ward)
        rows = wards == ward
        assert alone.threshold == each[ward]
        assert np.array_equal(found[rows], alone.predict_set(probs[rows]))
    explained = predictor.explain(probs, groups=wards)
    assert [one.record for one in explained] == [*range(60)]
    assert explained[1].threshold == each["south"]
    assert (found <= predictor.predict_set(probs)).all()
    assert predictor.sizes(probs, groups=wards).tolist() == found.sum(axis=1).tolist()
    with pytest.raises(BadInput, match="groups hold east; accepted are those of the card: north"):
        predictor.predict_set(probs, groups=["east"] * 60)
    with pytest.raises(BadInput, match="2 groups for 60 records"):
        predictor.predict_set(probs, groups=["north", "south"])


def test_a_group_does_not_leave_out_its_first_stage(cards: dict[str, Card]) -> None:
    """With a threshold of its own a group tests every stage until one has passed."""
    card = cards["bits:per-group"]
    found, place = card.formal["certificate"], ("certificate", "strata", "parts")
    i = next(i for i, part in enumerate(parts(card)) if len(part["rungs"]) > 1)
    hidden = parts(card)[i]
    hidden = hidden | without_stage(found | hidden, 0)
    assert hidden["threshold"] < 1
    shown = ("released", "strata", "parts", i, "threshold")
    kept = [part["threshold"] for j, part in enumerate(parts(card)) if j != i]
    top = max([hidden["threshold"], *kept])
    lie = forged(
        card,
        ((*place, i), hidden),
        (shown, hidden["threshold"]),
        (("certificate", "threshold"), top),
        (("released", "threshold"), top),
    )
    assert broken(lie) == [f"certificate/strata/parts/{i}/stages"]
