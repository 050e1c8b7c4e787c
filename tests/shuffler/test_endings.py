"""How rounds and campaigns of a shuffler end: in time, at the maximum, or with nothing left."""

import logging
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from confide.aggregator.cli.stored import open_store
from confide.aggregator.storage.schema import queries
from confide.aggregator.storage.stored_campaign import (
    CALIBRATED,
    DEADLINE,
    ENOUGH,
    Round,
    Settings,
    Turnout,
)
from confide.protocol.methods.bits import BitTerms
from confide.protocol.plan import Plan
from confide.protocol.shuffling import MOST_CROWD
from confide.shuffler.closing import due, last_moment
from confide.shuffler.relay import NO_CERTIFICATE
from confide.shuffler.standing import standing
from confide.shuffler.storage import EXPIRED, MixedRounds
from tests.support.cards.shuffled_plans import SHUFFLED
from tests.support.servers.servers import Place, eventually
from tests.support.servers.shuffled_search import traces
from tests.support.servers.shufflers import (
    ShufflerPlace,
    collected,
    everything,
    named,
    sealed_contribution,
    stored,
)

EXPIRES, DAY = SHUFFLED.expires.timestamp(), 86_400.0
COME = Turnout(finished=0, contributed=1, reports=100)


def opened(at: float, *, seconds: float = 3_600.0) -> Round:
    return Round(0, bytes(32), at, at + seconds, None, None, None)


def lasting(plan: Plan, seconds: float) -> Plan:
    """Return a plan that is valid for so long from now."""
    now = datetime.now(UTC).replace(microsecond=0)
    return replace(plan, issued=now, expires=now + timedelta(seconds=seconds))


def sealed_by_owners(shuffler: ShufflerPlace, plan: Plan, campaign: str) -> list[bytes]:
    return named(stored(shuffler.url, campaign), "sealed", plan.terms.row_bytes + 48)


def test_a_round_with_its_crowd_is_closed_in_time_to_be_handed_over() -> None:
    """2 % of 31 days before the plan expires, or a minute of a short one, or half of what a late
    round has; without its crowd it stays open until the plan has expired."""
    early = last_moment(SHUFFLED, opened=EXPIRES - 20 * DAY)
    assert early == EXPIRES - 0.02 * 31 * DAY
    hour = replace(SHUFFLED, issued=SHUFFLED.expires - timedelta(hours=1 / 2))
    assert last_moment(hour, opened=EXPIRES - 1_500.0) == EXPIRES - 60.0
    assert last_moment(hour, opened=EXPIRES - 10.0) == EXPIRES - 5.0
    last, settings = opened(EXPIRES - 20 * DAY, seconds=90 * DAY), Settings()
    few = COME._replace(reports=99)
    for come, now, because in (
        (COME, early - 1.0, None),
        (COME, early, DEADLINE),
        (few, early, None),
        (few, EXPIRES - 1.0, None),
        (few, EXPIRES, EXPIRED),
    ):
        assert due(SHUFFLED, settings, last, came=come, now=now) == because
    assert due(SHUFFLED, settings, opened(0.0), came=COME, now=3_601.0) == DEADLINE


def test_a_round_that_is_open_when_the_plan_expires_is_not_lost(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """A plan of 40 seconds and rounds of an hour: the round has its crowd, and gives a card."""
    plan = lasting(shuffler.plan(crowd=300, variant="one-shot"), 40.0)
    campaign = place.campaign(plan)
    running = shuffler.relay(place.serve().port, campaign)
    made = sealed_contribution(shuffler, running, plan, tmp_path / "owner", seed=1, n=300)
    assert made.once().well
    eventually(lambda: shuffler.store.rounds(campaign)[0].closed, what="a closed round")
    assert time.time() < plan.expires.timestamp()
    eventually(lambda: place.store.campaign(campaign).state == CALIBRATED, what="calibrated")
    assert shuffler.store.campaign(campaign).reason is None


def test_whoever_gives_rounds_too_much_time_is_warned(
    place: Place, shuffler: ShufflerPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight rounds of a day in a plan of seven days may not end in time; one does."""
    upstream = place.serve()
    for variant, warned in (("one-shot", False), ("certified", True), ("published", True)):
        plan = lasting(shuffler.plan(crowd=10, variant=variant), 7 * DAY)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            remote = shuffler.remote(upstream, place.campaign(plan))
            shuffler.join(remote, round_seconds=DAY)
        assert any("expire before its last round" in text for text in caplog.messages) == warned
    assert BitTerms(variant="certified", epsilon=1.0, delta=0.1).most_rounds == 8


def test_a_round_as_large_as_a_shuffler_can_mix_is_closed(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """Whatever its time and its owners: what has come by then is handed over."""
    plan = shuffler.plan(crowd=10, variant="one-shot")
    campaign = collected(shuffler, place, plan, tmp_path / "owner", reports=300)
    relay = shuffler.relay_here({campaign: shuffler.remote(place.servers[0], campaign)})
    for reports, because in ((MOST_CROWD - 1, None), (MOST_CROWD, ENOUGH)):
        with shuffler.store.engine.begin() as db:
            db.execute(update(queries).values(reports=reports))
        assert relay.step() == set()
        assert shuffler.store.rounds(campaign)[0].because == because
    last, many = opened(0.0, seconds=9e9), COME._replace(reports=MOST_CROWD)
    later = Settings(enough=2 * MOST_CROWD)
    assert due(SHUFFLED, later, last, came=many, now=1.0) == ENOUGH


def test_nothing_of_a_campaign_that_failed_is_left(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """Its round was mixed while the aggregator was dead; the aggregator comes back and takes it no
    more. What owners sent and the mixed batch are in no file of the shuffler."""
    plan = shuffler.plan(crowd=300, variant="one-shot")
    campaign = collected(shuffler, place, plan, tmp_path / "owner", reports=300)
    sealed = sealed_by_owners(shuffler, plan, campaign)
    upstream = place.servers[0]
    remote, rounds = shuffler.remote(upstream, campaign), MixedRounds(shuffler.store.engine)
    upstream.kill()
    shuffler.store.close_round(campaign, 0, ENOUGH, now=time.time())
    relay = shuffler.relay_here({campaign: remote})
    assert relay.step() == {campaign}
    assert rounds.mixed(campaign, 0) is not None
    assert len(traces(everything(shuffler.url), sealed)) == 300
    place.store.close(campaign, now=time.time())
    place.serve(port=upstream.port)
    eventually(lambda: place.store.campaign(campaign).reason, what="a failed campaign")
    eventually(lambda: relay.step() == set(), what="an answer of the aggregator")
    reason = shuffler.store.campaign(campaign).reason or ""
    assert "CLOSED" in reason
    assert rounds.mixed(campaign, 0) is None
    assert stored(shuffler.url, campaign) == []
    assert traces(everything(shuffler.url), sealed) == []
    (shown,) = standing(shuffler.store)
    assert shown["reason"] == reason
    assert shown["rounds"][0]["words"] == "300 reports, deleted and not handed over"


def test_a_shuffler_that_was_killed_while_a_campaign_failed_forgets_it_later(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """The reason was stored, and nothing was deleted yet: the next process does it."""
    plan = shuffler.plan(crowd=300, variant="one-shot")
    campaign = collected(shuffler, place, plan, tmp_path / "owner", reports=300)
    sealed = sealed_by_owners(shuffler, plan, campaign)
    shuffler.store.fail(campaign, "why", now=time.time())
    shuffler.relay_here({}).step()
    assert shuffler.store.campaign(campaign).reason == "why"
    assert traces(everything(shuffler.url), sealed) == []


def test_a_receipt_that_was_lost_is_no_failure_after_the_aggregator_purged(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """The database of a shuffler that was killed after the hand-over and before it forgot: the
    aggregator has its card, knows the batch no more, and nothing stays at the shuffler."""
    plan = shuffler.plan(crowd=300, variant="one-shot")
    campaign = collected(shuffler, place, plan, tmp_path / "owner", reports=300)
    sealed = sealed_by_owners(shuffler, plan, campaign)
    upstream = place.servers[0]
    remotes = {campaign: shuffler.remote(upstream, campaign)}
    upstream.kill()
    shuffler.store.close_round(campaign, 0, ENOUGH, now=time.time())
    assert shuffler.relay_here(remotes).step() == {campaign}
    before = tmp_path / "before.sqlite"
    live = sqlite3.connect(shuffler.url.removeprefix("sqlite:///"))
    with closing(live), closing(sqlite3.connect(before)) as copy:
        live.backup(copy)
    place.serve(port=upstream.port)
    eventually(lambda: shuffler.relay_here(remotes).step() == set(), what="the hand-over")
    eventually(lambda: place.store.campaign(campaign).state == CALIBRATED, what="calibrated")
    place.store.purge(campaign, now=time.time())

    again = open_store(f"sqlite:///{before}")
    relay, rounds = shuffler.relay_here(remotes, store=again), MixedRounds(again.engine)
    eventually(lambda: relay.step() or rounds.held(campaign, 0), what="an end of the round")
    assert again.campaign(campaign).reason is None
    (shown,) = standing(again)
    assert "300 reports handed over; the aggregator went on" in shown["rounds"][0]["words"]
    assert traces(everything(f"sqlite:///{before}"), sealed) == []
    again.engine.dispose()


def test_an_aggregator_whose_campaign_failed_is_asked_no_more(
    place: Place, shuffler: ShufflerPlace
) -> None:
    """Its campaign fails here too, with a reason that `status` shows."""
    campaign = place.campaign(shuffler.plan(crowd=10, variant="one-shot"))
    remote, asked = shuffler.remote(place.serve(), campaign), list[float]()
    remote.happens = lambda: asked.append(time.time())
    shuffler.join(remote)
    place.store.close(campaign, now=time.time())
    relay = shuffler.relay_here({campaign: remote})
    eventually(lambda: place.store.campaign(campaign).reason, what="a failed campaign")
    eventually(lambda: relay.step() or standing(shuffler.store)[0]["reason"], what="a reason")
    assert standing(shuffler.store)[0]["reason"] == NO_CERTIFICATE
    before = len(asked)
    for _ in range(3):
        time.sleep(0.6)
        assert relay.step() == set()
    assert len(asked) == before
