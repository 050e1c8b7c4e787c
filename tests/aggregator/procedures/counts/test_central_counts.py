"""Counts asked of owners: what plans pay for, what policies allow, what is admitted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import Outcome, run_campaign
from confide.aggregator.campaigns.planning.plans import make_plan
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.quantiles.base import Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram
from confide.aggregator.quantiles.registry import USUAL_BETA
from confide.client.explain import explain
from confide.client.ledger.ledger import Ledger
from confide.client.respond import Respondent
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.counts.queries import CountQuery, HistogramQuery
from confide.protocol.plan import Plan, digest, open_plan, write_query
from confide.protocol.privacy.zcdp import search_steps, zcdp_epsilon
from confide.protocol.simulated.settings import ALWAYS
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse, serialise
from confide.simulation.defaults import run_defaults
from tests.support.cards.central import BINS, CENTRAL, NOISED, TRUSTED
from tests.support.owners.owners import (
    NOW,
    POLICY,
    PUBLIC,
    central,
    changed,
    owner,
    records,
    signed,
)


def test_the_plan_pays_for_all_counts_together() -> None:
    """The variance is the least whole one within (epsilon, delta); a plan with less is refused."""
    steps = search_steps(BINS)
    assert steps == 8
    spent = [
        zcdp_epsilon(steps / (2 * (central(NOISED).noise_variance - less)), 1e-6) for less in (0, 1)
    ]
    assert spent[0] <= 1.0 < spent[1]
    with pytest.raises(BadInput, match="the plan says"):
        changed(NOISED, noise_variance=central(NOISED).noise_variance - 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"beta": 0.1},
        {"beta": -0.1},
        {"bins": 1},
        {"noise_variance": 5},
        {"privacy_delta": 1.0},
        {"mechanism": ""},
        {"mechanism": "[red]"},
        {"mechanism": "x" * 65},
    ],
)
def test_impossible_central_plans_are_refused(changes: dict[str, Any]) -> None:
    """With what was found and what is accepted."""
    with pytest.raises(BadInput):
        changed(TRUSTED, **changes)


def test_only_a_mechanism_that_averages_does_without_a_beta() -> None:
    """Owners' noise and other mechanisms need one; the plan is refused before anybody is asked."""
    with pytest.raises(BadInput, match="beta is 0"):
        changed(NOISED, beta=0.0)
    with pytest.raises(BadInput, match="pps needs beta"):
        next(plan_procedure(changed(TRUSTED, mechanism="pps", beta=0.0), draw_afresh))
    assert next(plan_procedure(changed(TRUSTED, beta=0.0), draw_afresh))


def test_the_default_leaves_no_part_of_alpha_to_the_mechanism() -> None:
    """Unless the mechanism needs one, or a beta is given."""

    def beta(campaign: str, **settings: Any) -> float:
        given = {**run_defaults(), "records": 1_000, "model": "00" * 32, **settings}
        return central(make_plan(campaign, given, title="any", valid=ALWAYS)).beta

    assert beta("central:trusted") == 0.0
    assert beta("central:trusted", beta=0.01) == 0.01
    assert beta("central:trusted", mechanism="laplace-counts") == USUAL_BETA
    # PPS has an optimum of its own, gamma* alpha: here (n + 1) alpha (1 - alpha) epsilon / 2 is 90.
    assert 1e-3 < beta("central:trusted", mechanism="pps") < 0.1 / 90
    assert beta("central:owner-noised") == USUAL_BETA


@pytest.mark.parametrize("name", ["dpcp", "noisy-midpoint", "votes"])
def test_a_mechanism_that_certifies_nothing_calibrates_nothing(name: str) -> None:
    """It is refused before anybody is asked, with the mechanisms that are accepted."""
    plan = changed(TRUSTED, mechanism=name)
    with pytest.raises(BadInput, match=r"accepted: .*rank-exponential"):
        next(plan_procedure(plan, draw_afresh))


def first_query(plan: Plan) -> HistogramQuery | CountQuery:
    if plan.variant == "trusted":
        return HistogramQuery(BINS)
    return CountQuery(0.5, central(plan).noise_variance)


def ask(one: Any, plan: Plan, threshold: float, round_: int) -> wire.Answer:
    query = CountQuery(threshold, central(plan).noise_variance)
    return parse(
        wire.Answer,
        one.answer(signed(plan), write_query(query, plan=digest(plan.to_bytes()), round_=round_)),
    )


def counted(answer: wire.Answer) -> Any:
    """The numbers in an owner's answer."""
    return np.frombuffer(wire.Counts.FromString(answer.batch.body).counts, "<i8")


def test_a_hostile_aggregator_gets_no_more_counts_than_were_paid_for(tmp_path: Path) -> None:
    """The plan's whole epsilon is charged with the first count; the rounds are counted, repeated
    questions get the same bytes, and a second campaign finds nothing left."""
    one = owner(tmp_path, policy=CENTRAL)
    answers = [ask(one, NOISED, 0.1 + i / 100, i % 8) for i in range(12)]
    assert [wire.Code.Name(answer.code) for answer in answers] == ["OK"] * 8 + ["ALREADY_SPENT"] * 4
    assert ask(one, NOISED, 0.1, 0) == answers[0]
    assert ask(one, NOISED, 0.5, 8).code == wire.Code.MALFORMED
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (2_000, 1.0)
    assert ask(one, changed(NOISED, campaign="another"), 0.1, 0).code == wire.Code.ALREADY_SPENT
    counts = [counted(answer) for answer in answers[:8]]
    assert {count[0] for count in counts} == {2_000}
    assert len({answer.batch.ids for answer in answers[:8]}) == 1


def test_delta_adds_up_over_a_records_life(tmp_path: Path) -> None:
    """Two campaigns at delta 1e-6 want 2e-6; a policy of 1.5e-6 a record stops the second, whatever
    epsilon is left."""
    one = owner(tmp_path, policy=replace(CENTRAL, epsilon_per_record=40.0, delta_per_record=1.5e-6))
    assert ask(one, NOISED, 0.5, 0).code == wire.Code.OK
    assert ask(one, changed(NOISED, campaign="another"), 0.5, 0).code == wire.Code.ALREADY_SPENT


@pytest.mark.parametrize("plan", [TRUSTED, NOISED])
def test_records_that_come_later_take_no_part(plan: Plan, tmp_path: Path) -> None:
    """An owner whose file grew answers a later round for the records that paid, and a one-round
    plan not at all."""
    few, more = records(100, 1), records(200, 1)

    def with_(found: Any) -> Respondent:
        return Respondent(
            records=found,
            policy=lambda: CENTRAL,
            ledger=Ledger(tmp_path / "ledger.sqlite"),
            secret=bytes(32),
            entropy=SeededEntropy(1),
            now=lambda: NOW,
        )

    name = digest(plan.to_bytes())
    query = (
        HistogramQuery(BINS)
        if plan.variant == "trusted"
        else CountQuery(0.5, central(plan).noise_variance)
    )
    first = parse(
        wire.Answer, with_(few).answer(signed(plan), write_query(query, plan=name, round_=0))
    )
    assert first.code == wire.Code.OK
    # Bytes that say the same and are not the same: the version, two bytes, comes last.
    once = write_query(query, plan=name, round_=0)
    again = once[2:] + once[:2]
    # A field that nobody knows is refused before anything is looked up.
    assert (
        parse(wire.Answer, with_(more).answer(signed(plan), once + b"\xf8\x07\x01")).code
        == wire.Code.MALFORMED
    )
    assert (
        parse(wire.Answer, with_(more).answer(signed(plan), again)).code == wire.Code.ALREADY_SPENT
    )
    if plan.variant != "trusted":
        assert counted(ask(with_(more), plan, 0.6, 1))[0] == 100


@pytest.mark.parametrize(
    ("plan", "changes", "code"),
    [
        (TRUSTED, {"exact_counts_may_leave": False}, wire.Code.EXACT_COUNTS_MAY_NOT_LEAVE),
        (NOISED, {"delta_per_campaign": 1e-7}, wire.Code.DELTA_PER_CAMPAIGN),
        (NOISED, {"methods": frozenset({"bits"})}, wire.Code.METHOD_NOT_ALLOWED),
        (NOISED, {"minimum_group": 10_000}, wire.Code.GROUP_TOO_SMALL),
        (changed(NOISED, epsilon=2.0), {}, wire.Code.EPSILON_PER_RECORD),
    ],
)
def test_the_policy_decides(plan: Plan, changes: dict[str, Any], code: int, tmp_path: Path) -> None:
    """Exact counts, deltas, methods, groups and lifetime budgets are the owner's to allow."""
    one = owner(tmp_path, policy=replace(CENTRAL, **changes))
    query = (
        HistogramQuery(BINS)
        if plan.variant == "trusted"
        else CountQuery(0.5, central(plan).noise_variance)
    )
    answer = one.answer(signed(plan), write_query(query, plan=digest(plan.to_bytes()), round_=0))
    assert parse(wire.Answer, answer).code == code


def test_explain_says_what_counts_tell() -> None:
    """In plain words: exact counts are named as such, noised ones with their noise and delta."""
    plan, _ = open_plan(signed(TRUSTED), trusted={PUBLIC}, now=NOW)
    assert "EXACT counts" in explain(plan, POLICY)
    assert "aggregator itself sees" in explain(plan, POLICY)
    assert "refused" in explain(plan, POLICY)
    page = explain(NOISED, CENTRAL)
    assert "Up to 8 times" in page
    assert "1e-06 that bound does not hold" in page
    assert "allowed" in page


def test_counts_that_cannot_be_are_rejected(tmp_path: Path) -> None:
    """Negative exact counts, the wrong number of them, foreign columns: counted under a code, with
    no effect."""
    answer = parse(
        wire.Answer,
        owner(tmp_path, policy=CENTRAL).answer(
            signed(TRUSTED),
            write_query(HistogramQuery(BINS), plan=digest(TRUSTED.to_bytes()), round_=0),
        ),
    )
    good = counted(answer)
    bad: list[dict[str, Any]] = [
        {"body": serialise(wire.Counts(counts=good[:-1].tobytes()))},
        {"body": serialise(wire.Counts(counts=(good - 1).tobytes()))},
        {"body": serialise(wire.Counts(counts=(good + (1 << 41)).tobytes()))},
        {"body": answer.batch.body + b"\x12\x01x"},
        {"ids": b"short"},
        {"round": 1},
        {"plan": b""},
        {"version": 9},
    ]
    messages = [answer]
    for changes in bad:
        altered = wire.Answer()
        altered.CopyFrom(answer)
        for name, value in changes.items():
            setattr(altered.batch, name, value)
        messages.append(altered)

    def draw(mechanism: Mechanism, counts: Histogram, rank: int) -> Release:
        return mechanism.release(counts, rank, SeededEntropy(1))

    outcome: Outcome = run_campaign(
        TRUSTED,
        lambda query: [
            Sent(b"one", message.SerializeToString()) for message in [*messages, answer]
        ],
        draw=draw,
    )
    assert outcome.certificate.n == 2_000
    assert outcome.received["OK"] == 1
    assert outcome.received["DUPLICATE"] == 1
    assert sum(outcome.received.values()) == len(bad) + 2
