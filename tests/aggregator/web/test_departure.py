"""Owners that leave while a campaign runs, on its page and in its gauges."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert, select

from confide.aggregator.cli.stored import open_store
from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.storage.schema import owners, parts
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import ENOUGH, Settings
from confide.aggregator.storage.views import overview
from confide.aggregator.web.html_pages import Pages
from confide.aggregator.web.metrics import metrics
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.methods.bits import BitQuery, BitTerms
from confide.protocol.methods.labels.pairs import PairQuery, PairTerms
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.methods.partition import Groups
from confide.protocol.methods.parts import BitTally
from confide.protocol.plan import digest, sign_plan, write_query
from confide.simulation.driver import drive
from tests.support.owners.leaving import Leaving
from tests.support.owners.owners import BY_WARD, KEY, LABEL_PLAN, PUBLIC, WARDS, K
from tests.support.servers.servers import plan_now

WARD = Groups("ward", WARDS)
PAIRS = PairTerms(variant="class-conditional", epsilon=4.0, delta=0.1, channel="k-rr")
# A question of each campaign to a slice of the records.
SLICES: dict[str, Callable[[float, float], Any]] = {
    "pairs": lambda a, b: PairQuery(PAIRS.make_channel(labels=K), a, b, ((0.5,) * K,)),
    "bits by group": lambda a, b: BitQuery(Bit(4.0), a, b, (0.5,) * len(WARDS), WARD, True),
    "labels": lambda a, b: LabelQuery(KaryRR(k=K, epsilon=4.0), a, b),
}
PLANS = {
    "pairs": plan_now(terms=PAIRS),
    "bits by group": plan_now(variant="per-group", part_floor=500, **BY_WARD),
    "labels": plan_now(LABEL_PLAN),
}


def sent(store: Store, campaign: str, number: int, reports: Mapping[str, int]) -> None:
    """Write down how many reports of a round came from each owner."""
    row = {"batches": 1, "bytes": 0, "seeded": True, "finished": True, "code": None}
    with store.engine.begin() as db:
        known = {one.name: one.id for one in db.execute(select(owners))}
        for name, count in reports.items():
            if name not in known:
                made = db.execute(insert(owners).values(name=name)).inserted_primary_key
                assert made is not None
                known[name] = made[0]
            at = {"campaign": campaign, "round": number, "owner": known[name]}
            db.execute(insert(parts).values(reports=count, **at, **row))


def gauge(read: bytes) -> float | None:
    """The share of the first round's reports whose owners have left, if it is measured."""
    found = [
        sample.value
        for family in text_string_to_metric_families(read.decode())
        for sample in family.samples
        if sample.name == "confide_owners_left"
    ]
    return found[0] if found else None


@pytest.mark.parametrize("kind", PLANS)
def test_owners_that_leave_are_seen_whatever_a_campaign_keeps_apart(
    tmp_path: Path, kind: str
) -> None:
    """Groups are no owners, and the tallies of pairs and labels are not stored."""
    store = open_store(f"sqlite:///{tmp_path / 'campaigns.sqlite'}")
    campaign = store.create(sign_plan(PLANS[kind], KEY), Settings(), now=0.0).id
    store.open(campaign, now=0.0)
    read, page = metrics(store, ProcessStatus(), lambda: 0.0), Pages(store, PUBLIC)
    assert gauge(read()) is None
    name = digest(PLANS[kind].to_bytes())
    seen: list[tuple[float | None, bool]] = []
    missing: list[bool] = []
    rounds = [{"a": 600, "b": 400}, {"a": 500, "b": 10}, {"a": 550, "b": 0}]
    for number, reports in enumerate(rounds):
        query = SLICES[kind](number / 4, (number + 1) / 4)
        store.ask(campaign, number, write_query(query, plan=name, round_=number), now=0, seconds=60)
        sent(store, campaign, number, reports)
        store.close_round(campaign, number, ENOUGH, now=1.0)
        one = overview(store.engine, campaign)
        assert one is not None
        shown = page.campaign(one, whole=False)
        seen.append((gauge(read()), "owners of 40% of the reports of the first round" in shown))
        missing.append("33% of the reports that the plan expects of the first round" in shown)
    # 1,000 of a quarter of 6,000 records.
    assert missing == [True] * 3
    assert seen == [(0.0, False), (0.0, False), (0.4, True)]


@pytest.mark.parametrize("planned", [False, True])
def test_a_departure_is_shown_while_the_campaign_runs(tmp_path: Path, planned: bool) -> None:
    """Nothing is said while everybody answers; once the owner of 40 % has left, the page and the
    gauge do, and under a planned mixture not that another one is certified."""
    store = open_store(f"sqlite:///{tmp_path / 'campaigns.sqlite'}")
    plan = plan_now(expected_records=4_000, planned_mixture=planned)
    campaign = store.create(sign_plan(plan, KEY), Settings(), now=0.0).id
    store.open(campaign, now=0.0)
    read, page = metrics(store, ProcessStatus(), lambda: 0.0), Pages(store, PUBLIC)
    users = Leaving(4_000, rounds=2, seed=1)
    seen: list[tuple[float | None, str]] = []

    def answer(query: BitQuery) -> BitTally:
        tally, number = users(query), len(seen)
        asked = write_query(query, plan=digest(plan.to_bytes()), round_=number)
        store.ask(campaign, number, asked, now=0.0, seconds=60.0)
        sent(store, campaign, number, {key.decode(): tally.of(key).size for key in tally.keys})
        store.close_round(campaign, number, ENOUGH, now=1.0)
        store.keep_tally(campaign, number, json.dumps(tally.to_json()))
        one = overview(store.engine, campaign)
        assert one is not None
        seen.append((gauge(read()), page.campaign(one, whole=False)))
        return tally

    terms = BitTerms.of(plan.terms)
    drive(
        bits.certified(
            channel=terms.make_channel(labels=plan.labels), alpha=plan.alpha, delta=0.1, n=4_000
        ),
        answer,
    )
    for share, shown in seen[:2]:
        assert share == 0.0
        assert "Owners have left" not in shown
    for share, shown in seen[2:]:
        assert share == pytest.approx(0.4, abs=0.1)
        assert f"owners of {share:.0%} of the reports of the first round did not answer" in shown
        assert ("says nothing of the planned one" in shown) != planned
    assert len(seen) > 2
