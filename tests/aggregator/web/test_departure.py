"""Owners that leave while a campaign runs, on its page and in its gauges."""

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from confide.aggregator.cli.stored import open_store
from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.storage.stored_campaign import ENOUGH, Settings
from confide.aggregator.storage.views import overview
from confide.aggregator.web.html_pages import Pages
from confide.aggregator.web.metrics import metrics
from confide.protocol.methods.bits import BitQuery, BitTerms
from confide.protocol.methods.parts import BitTally
from confide.protocol.plan import digest, sign_plan, write_query
from confide.simulation.driver import drive
from tests.support.leaving import Leaving
from tests.support.owners import KEY, PUBLIC
from tests.support.servers import plan_now


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
    seen: list[tuple[float, str]] = []

    def answer(query: BitQuery) -> BitTally:
        tally, number = users(query), len(seen)
        asked = write_query(query, plan=digest(plan.to_bytes()), round_=number)
        store.ask(campaign, number, asked, now=0.0, seconds=60.0)
        store.close_round(campaign, number, ENOUGH, now=1.0)
        store.keep_tally(campaign, number, json.dumps(tally.to_json()))
        one = overview(store.engine, campaign)
        assert one is not None
        families = text_string_to_metric_families(read().decode())
        (left,) = [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "confide_owners_left"
        ]
        seen.append((left, page.campaign(one, whole=False)))
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
