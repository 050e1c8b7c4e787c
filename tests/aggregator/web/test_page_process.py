"""The process behind the page: running campaigns, its health, its port, its end."""

import http.client
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from confide.aggregator.cli.server import app as aggregator_app
from confide.aggregator.keys import SIGNING_KEY
from confide.aggregator.process_status import STALE_SECONDS, ProcessStatus
from confide.aggregator.web.server import MOST_WATCHERS
from confide.aggregator.web.words import MEANINGS
from confide.client.transport.contribution import Contribution
from confide.protocol.cards.card import AUDITOR, AUDITOR_ONLY
from confide.protocol.plan import Plan
from confide.protocol.wire import wire_pb2 as wire
from tests.support.cards.central import NOISED, OPEN_POLICY, TRUSTED
from tests.support.servers.pages import get, needs_browser
from tests.support.servers.servers import (
    Place,
    contribution,
    eventually,
    page_port,
    plan_now,
    searched,
    together,
)


@pytest.mark.parametrize("plan", [TRUSTED, NOISED], ids=["trusted", "owner-noised"])
def test_no_exact_count_is_shown(plan: Plan, place: Place, tmp_path: Path) -> None:
    """Of exact counts only the release is shown; counts with owners' noise may be."""
    server, plan, exact = place.serve("--http", "0"), plan_now(plan), plan is TRUSTED
    campaign, token = place.campaign(plan, owners=1), place.enrol("owner")
    eventually(lambda: place.store.rounds(campaign))
    time.sleep(0.5)
    contribution(
        server.access(token), plan, tmp_path / campaign, seed=1, n=1_000, policy=OPEN_POLICY
    ).watch()
    eventually(lambda: place.store.campaign(campaign).state == "calibrated")
    assert bool(searched(place, campaign)) == (not exact)
    status, _, body = get(server, f"/campaigns/{campaign}")
    assert (status, b"sees exact counts" in body) == (200, exact)
    auditor = place.store.card(campaign, AUDITOR)
    assert (auditor is not None) == exact
    shown = get(server, f"/campaigns/{campaign}/card")[2]
    assert not [name for name in AUDITOR_ONLY if f">{name}<".encode() in shown]


def test_a_process_that_cannot_look_or_write_is_not_well() -> None:
    """Before the first look, after a failed transaction, and when the last look is long ago."""
    status = ProcessStatus()
    assert not status.healthy(0.0)
    status.looked = 100.0
    assert status.healthy(101.0)
    assert not status.healthy(100.0 + STALE_SECONDS)
    status.writes = False
    assert not status.healthy(101.0)
    status.writes, status.stopping = True, True
    assert not status.healthy(101.0)


def test_a_port_that_is_taken_is_refused(place: Place) -> None:
    """Exit code 2 and a line, before anything listens."""
    arguments = [
        "serve",
        "--key",
        str(place.keys / SIGNING_KEY),
        "--db",
        place.url,
        "--insecure-loopback",
    ]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = []
        for port in (taken.getsockname()[1], 70_000):
            result = CliRunner().invoke(
                aggregator_app, [*arguments, "--listen", "127.0.0.1:0", "--http", str(port)]
            )
            assert result.exit_code == 2
            said.append(result.stderr)
    assert "accepted is a free port" in said[0]
    assert "0<=x<=65535" in said[1]


def test_every_code_has_a_meaning() -> None:
    """Whatever is counted is also explained."""
    assert set(MEANINGS) == set(wire.Code.keys()) - {"OK"}


@needs_browser
def test_a_running_campaign_updates_without_reload(
    place: Place, tmp_path: Path, chromium: Any
) -> None:
    """Reports, the search and at last the card appear on a page that stays loaded; what was
    unfolded stays unfolded."""
    server = place.serve("--http", "0")
    plan = plan_now(expected_records=4_000)
    campaign = place.campaign(plan, owners=2)
    tokens = [place.enrol(name) for name in ("north", "south")]
    eventually(lambda: place.store.rounds(campaign))
    time.sleep(0.5)

    def part(i: int) -> Contribution:
        return contribution(server.access(tokens[i]), plan, tmp_path / str(i), seed=i, n=2_000)

    page, said = chromium.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"http://127.0.0.1:{page_port(server)}/campaigns/{campaign}")
    page.evaluate("window.mark = 'not reloaded'")
    page.get_by_text("live", exact=True).wait_for()
    page.get_by_text("Nobody has answered yet.").wait_for()
    page.get_by_text("The picture as a table").click()
    part(0).once()
    page.locator("#owners").get_by_text("north").wait_for()
    assert page.locator("#status .state").inner_text() == "open"
    assert page.locator("#search circle.asked").count() == 12
    part(1).once()
    page.locator("#search circle.above").first.wait_for()
    together(2, lambda i: part(i).watch())
    page.get_by_text("clauses hold").wait_for()
    page.get_by_role("link", name="card.json").wait_for()
    assert page.locator("#status .state").inner_text() == "calibrated"
    assert page.locator("#points").get_attribute("open") is not None
    assert page.evaluate("window.mark") == "not reloaded"
    assert said == []
    server.kill()
    page.get_by_text("connection lost").wait_for()
    page.close()


def test_many_may_watch_and_a_server_stops_all_the_same(place: Place) -> None:
    """Beyond its limit nobody more is let in to watch, health checks are still served, and no
    watcher delays a stop."""
    server = place.serve("--http", "0")
    links = [
        http.client.HTTPConnection("127.0.0.1", page_port(server), timeout=30)
        for _ in range(MOST_WATCHERS + 5)
    ]
    answers = []
    for link in links:
        link.request("GET", "/events")
        answers.append(link.getresponse())
        assert answers[-1].status == 503 or answers[-1].readline() == b"event: parts\n"
    assert [answer.status for answer in answers] == [200] * MOST_WATCHERS + [503] * 5
    assert get(server, "/healthz")[0] == 200
    assert server.stop() == 0
    for answer, link in zip(answers, links, strict=True):
        answer.close()
        link.close()
