"""What somebody else defines runs through the product to a verified card, on every path."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.campaigns.planning.plans import make_plan
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.client.explain import explain
from confide.client.policy import Policy
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.verify.local import rules as local_cards
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.registry import METHODS, register
from confide.protocol.plan import Plan
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import serialise
from confide.simulation.driver import drive
from tests.extension.toys import (
    RULES,
    SQUARE,
    Bytes,
    GuessQuery,
    GuessTerms,
    OnesTally,
    Renamed,
    forget,
)
from tests.extension.toys import register as register_toys
from tests.support.cards.central import OPEN_POLICY, TRUSTED
from tests.support.owners.owners import KEY, LABEL_PLAN, NOW, PLAN, asking, changed, owner, signed
from tests.support.repository.places import ROOT
from tests.support.servers.servers import (
    Place,
    contribution,
    eventually,
    plan_now,
    searched,
    together,
)

THROUGH = (sys.executable, str(ROOT / "tests" / "extension" / "run_with_toys.py"))
GUESS = GuessTerms(variant="hoeffding", epsilon=4.0, delta=0.1, guess=0.97)
NAMES = ("method and score", "channel", "mechanism")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_toys()
    yield
    forget()


def allowing() -> Policy:
    """A policy that allows the toy method too."""
    return replace(OPEN_POLICY, methods=OPEN_POLICY.methods | {GuessTerms.method})


def planned(name: str = "method and score") -> Plan:
    """A plan that asks for one of the toys, and for the toy score."""
    plan = {
        "method and score": replace(PLAN, terms=GUESS),
        "channel": changed(LABEL_PLAN, channel=Bytes.name),
        "mechanism": changed(TRUSTED, mechanism=Renamed.name),
    }
    return replace(plan[name], score=SQUARE.name)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_to_a_verified_card_in_process(name: str, tmp_path: Path) -> None:
    """Owners answer as bytes, the in-process driver runs the procedure, and the card verifies."""
    plan = planned(name)
    assert Plan.from_bytes(plan.to_bytes()) == plan
    assert "allowed" in explain(plan, replace(allowing(), epsilon_per_campaign=4.0))
    owners = [
        owner(tmp_path / str(seed), seed=seed, n=3_000, policy=allowing(), entropy=os_entropy)
        for seed in range(2)
    ]
    outcome = run_campaign(plan, asking(signed(plan), owners))
    assert set(outcome.received) == {"OK"}
    assert 0 < outcome.certificate.threshold < 1
    card = campaign_card(plan, outcome, diagnostic={}, issued=NOW).sign(KEY)
    assert [one.clause for one in verify(parse_card(card.to_json())) if not one.holds] == []
    assert card.formal["decision"] == "feasible"


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_to_a_verified_card_over_grpc(name: str, place: Place, tmp_path: Path) -> None:
    """The same through a server process that has it registered."""
    plan = plan_now(planned(name))
    campaign, tokens = place.campaign(plan, owners=2), [place.enrol(f"owner {i}") for i in range(2)]
    server = place.serve(through=THROUGH)
    together(
        2,
        lambda i: contribution(
            server.access(tokens[i]), plan, tmp_path / str(i), seed=i, n=3_000, policy=allowing()
        ).watch(),
    )
    eventually(lambda: place.store.campaign(campaign).state == "calibrated")
    card = parse_card(place.store.card(campaign, PUBLIC) or "")
    assert [one.clause for one in verify(card) if not one.holds] == []
    assert card.formal["released"]["threshold"] < 1
    # The page shows what a method's own queries say, and nothing of queries that say nothing.
    shown = searched(place, campaign)
    assert [point.threshold for point in shown] == [GUESS.guess] * (name == "method and score")
    assert all(point.answers == 6_000 and point.above < 0.01 for point in shown)


def test_its_variants_mean_what_its_own_rules_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All reports test both thresholds of a variant that is called as one of the product, which
    tests thresholds in stages; only by rules that say so are their numbers added up."""
    plan = planned()
    owners = [owner(tmp_path, seed=0, n=3_000, policy=allowing(), entropy=os_entropy)]
    card = campaign_card(
        plan, run_campaign(plan, asking(signed(plan), owners)), diagnostic={}, issued=NOW
    )
    found = card.formal["certificate"]
    rungs = [{"threshold": q, "n": found["n"]} for q in (0.98, 0.97)]
    formal = card.formal | {"certificate": found | {"variant": "certified", "rungs": rungs}}
    for stages in ((), ("certified",)):
        rules = replace(RULES, variants=("certified",), by_stage=stages)
        monkeypatch.setitem(local_cards.RULES, GuessTerms.method, rules)
        broken = [one.clause for one in local_cards.local(formal) if not one.holds]
        assert broken == (["certificate/n"] if stages else [])


def test_settings_name_it() -> None:
    """An operator's settings make a plan of it, whose numbers are checked."""
    given: dict[str, Any] = {
        "score": "hps",
        "labels": 5,
        "alpha": 0.1,
        "records": 1_000,
        "minimum-reports": 0,
        "minimum-owners": 1,
        "model": "00" * 32,
        "epsilon": 1.0,
        "failure-probability": 0.1,
    }
    valid = (PLAN.issued, PLAN.expires)
    made = make_plan("toy-guess:hoeffding", given | {"guess": 0.5}, title="toy", valid=valid)
    assert made.terms == GuessTerms(variant="hoeffding", epsilon=1.0, delta=0.1, guess=0.5)
    with pytest.raises(BadInput, match="guess is 2"):
        make_plan("toy-guess:hoeffding", given | {"guess": 2.0}, title="toy", valid=valid)


def test_its_promise_can_be_tested_on_arrays() -> None:
    """The procedure needs no owners: told a tally, it decides."""
    plan = planned()

    def users(share: float) -> Any:
        def tally(query: GuessQuery) -> OnesTally:
            hit, spill = float(query.channel.hit), float(query.channel.spill)
            return OnesTally(10_000, round(10_000 * (spill + (hit - spill) * share)))

        return tally

    found = [drive(plan_procedure(plan, draw_afresh), users(share)) for share in (0.85, 0.95)]
    assert [one.threshold for one in found] == [1.0, GUESS.guess]


def test_a_name_that_is_taken_stays_whose_it_is() -> None:
    """Nobody replaces a built-in method, and a plan of a method that is not known is refused."""

    class Other(GuessTerms):
        method = "bits"

    with pytest.raises(BadInput, match="registered already"):
        register(Other)
    assert METHODS["bits"] is not Other
    message = wire.Plan.FromString(planned().to_bytes())
    message.method = "toy-unknown"
    with pytest.raises(Refused):
        Plan.from_bytes(serialise(message))


def test_lies_about_it_are_found(tmp_path: Path) -> None:
    """The registered rules decide: a slack that is too small is named."""
    plan = planned()
    one = owner(tmp_path, n=3_000, policy=allowing(), entropy=os_entropy)
    outcome = run_campaign(plan, asking(signed(plan), [one]))
    lie = replace(outcome.certificate, slack=np.nextafter(0.001, 1))  # type: ignore[call-arg]
    card = campaign_card(plan, replace(outcome, certificate=lie), diagnostic={}, issued=NOW)
    failed = [one.clause for one in verify(card.sign(KEY)) if not one.holds]
    assert failed == ["certificate/slack"]
