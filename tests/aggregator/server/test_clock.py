import sys
import time
from pathlib import Path
from typing import Any

import pytest

from confide.aggregator.clock import DOUBT_SECONDS, JUMP_SECONDS, Clock
from tests.support.repository.places import ROOT
from tests.support.servers.servers import Place, Running, eventually, plan_now

HOUR = 3_600.0


def test_a_jump_is_doubted_for_a_while_and_then_believed() -> None:
    """Forward or back; what a clock gains slowly, however long, is no jump."""
    day, steady = 1e9, 0.0
    clock = Clock(lambda: day, lambda: steady)
    for seconds, gained, jump in ((1e5, JUMP_SECONDS, 0.0), (1.0, HOUR, HOUR), (1.0, -HOUR, -HOUR)):
        steady, day = steady + seconds, day + seconds + gained
        assert (round(clock.look(), 3), clock.believed) == (jump, not jump)
    steady, day = steady + DOUBT_SECONDS - 1, day + DOUBT_SECONDS - 1
    assert (clock.look(), clock.believed) == (0.0, False)
    steady, day = steady + 1, day + 1
    assert (clock.look(), clock.believed) == (0.0, True)


def skewed(place: Place, ahead: Path) -> Running:
    """A server whose time of day is ahead by what the file says."""
    ahead.write_text("0")
    script = ROOT / "tests" / "support" / "servers" / "skewed.py"
    return place.serve(through=(sys.executable, str(script), str(ahead)))


def said(server: Running, event: str) -> list[dict[str, Any]]:
    return [one for one in server.events() if one["event"].startswith(event)]


def test_a_clock_that_jumps_past_the_end_and_back_ends_nothing(
    place: Place, tmp_path: Path
) -> None:
    """Beyond the deadline of a round and the end of the plan for seconds: the log says so, and the
    round goes on."""
    campaign, ahead = place.campaign(plan_now(), round_seconds=HOUR), tmp_path / "ahead"
    server = skewed(place, ahead)
    eventually(lambda: place.store.rounds(campaign))
    ahead.write_text(str(200 * 365 * 24 * HOUR))
    eventually(lambda: said(server, "the clock jumped"))
    time.sleep(2)
    ahead.write_text("0")
    eventually(lambda: len(said(server, "the clock jumped")) == 2)
    assert place.store.campaign(campaign).state == "open"
    assert [one.closed for one in place.store.rounds(campaign)] == [None]


@pytest.mark.parametrize(("seconds", "ended"), [(HOUR, True), (5.0, False)])
def test_a_lease_too_far_ahead_stops_no_campaign(place: Place, seconds: float, ended: bool) -> None:
    """That of a leader which died with a clock an hour ahead is ended and told of; one within what
    clocks differ is waited for."""
    campaign = place.campaign(plan_now())
    assert place.store.lease(campaign, "dead", now=time.time() + seconds, seconds=2.0)
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign), seconds=20)
    assert [one["campaign"] for one in said(server, "a lease lay too far ahead")] == [
        campaign
    ] * ended
