"""The pages of a calibrated campaign whose name and owners are hostile."""

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from confide.aggregator.storage import views
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import PUBLIC as PUBLIC_KEY
from tests.support.owners.owners import WARDS
from tests.support.servers.pages import get, needs_browser
from tests.support.servers.servers import (
    Place,
    Running,
    contribution,
    eventually,
    page_port,
    plan_now,
    together,
)

EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"


class Shown(NamedTuple):
    place: Place
    server: Running
    campaign: str

    @property
    def paths(self) -> tuple[str, str, str]:
        return "/", f"/campaigns/{self.campaign}", f"/campaigns/{self.campaign}/card"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Shown"]:
    """A server whose page shows a calibrated campaign with a hostile name."""
    folder = tmp_path_factory.mktemp("shown")
    place = Place(folder / "aggregator")
    server = place.serve("--http", "0")
    yield Shown(place, server, answered(place, server, folder, campaign=f"</title>{EVIL}"))
    place.close()


def answered(place: Place, server: Running, folder: Path, **changes: Any) -> str:
    """A campaign that two owners with hostile names have answered, calibrated."""
    plan = plan_now(expected_records=4_000, **changes)
    campaign = place.campaign(plan, owners=2)
    tokens = [place.enrol(f"{EVIL} {i} of {campaign}") for i in range(2)]
    eventually(lambda: place.store.rounds(campaign))
    time.sleep(0.5)
    together(
        2,
        lambda i: contribution(
            server.access(tokens[i]), plan, folder / f"{campaign}{i}", seed=i, n=2_000
        ).watch(),
    )
    eventually(lambda: place.store.campaign(campaign).state == "calibrated")
    return campaign


def test_every_page_is_read_only_escaped_and_guarded(shown: Shown) -> None:
    """Names of campaigns and owners stay text, headers forbid what was not served here, and nothing
    can be changed."""
    server = shown.server
    for path in (*shown.paths, "/no/such", "/campaigns/ffff"):
        status, headers, body = get(server, path)
        assert status == (200 if path in shown.paths else 404), path
        assert b"<script>window" not in body, path
        assert b"<img" not in body, path
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; style-src 'self'; script-src 'self'"
        )
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["cache-control"]) == (
            "nosniff",
            "no-store",
        )
        assert not re.search(rb"(src|href)=.?https?:", body), path
        assert get(server, path, method="POST")[0] in (404, 405)
    assert get(server, "/", host="rebound.example")[0] == 400
    assert get(server, "/static/../pages.py")[0] == 404
    assert get(server, "/static/%2e%2e/pages.py")[0] == 404
    assert get(server, "/static/..%2fpages.py")[0] == 404


def test_every_group_has_a_row_with_its_threshold_or_the_reason(
    shown: Shown, tmp_path: Path
) -> None:
    """On the page of the campaign and of its card; the name of a group stays text, too."""
    groups = {"group_column": "ward", "groups": (*WARDS[:2], EVIL), "part_floor": 100}
    campaign = answered(shown.place, shown.server, tmp_path, variant="per-group", **groups)
    card = parse_card(shown.place.store.card(campaign, PUBLIC) or "")
    each = {one["name"]: one for one in card.formal["certificate"]["strata"]["parts"]}
    for path in (f"/campaigns/{campaign}", f"/campaigns/{campaign}/card"):
        status, _, body = get(shown.server, path)
        page = body.decode()
        assert status == 200
        assert "Threshold of every group" in page
        assert all(f"{each[name]['threshold']:.6f}" in page for name in WARDS[:2])
        assert "the plan asks for 100 of a group" in page
        assert "<script>window" not in page
        assert "<img" not in page


def test_what_is_downloaded_is_what_was_stored(shown: Shown) -> None:
    """The card verifies as the store's does, the plan is the signed one, and the auditor's card is
    not among them."""
    place, server, campaign = shown
    files = {
        name: get(server, f"/campaigns/{campaign}/{name}")
        for name in ("plan.bin", "status.json", "card.json", "card.html")
    }
    assert {status for status, _, _ in files.values()} == {200}
    assert all(
        headers["content-disposition"].startswith("attachment") for _, headers, _ in files.values()
    )
    card = parse_card(files["card.json"][2].decode())
    assert files["card.json"][2].decode() == place.store.card(campaign, PUBLIC)
    assert all(finding.holds for finding in verify(card, key=PUBLIC_KEY))
    assert b"the key of this server; compare it" in files["card.html"][2]
    assert files["plan.bin"][2] == place.store.campaign(campaign).signed_plan
    assert json.loads(files["status.json"][2])["state"] == "calibrated"
    assert (
        f"{card.formal['certificate']['threshold']:.6f}".encode()
        in get(server, f"/campaigns/{campaign}")[2]
    )
    assert get(server, f"/campaigns/{campaign}/auditor.json")[0] == 404


def test_a_card_of_another_signer_is_called_out(shown: Shown) -> None:
    """A stored card that somebody has changed does not verify, and the page says so on all its
    pages."""
    place, server, campaign = shown
    assert b"clauses hold" in get(server, f"/campaigns/{campaign}/card")[2]
    stored = place.store.card(campaign, PUBLIC)
    assert stored is not None
    changed = stored.replace('"n": 4000', '"n": 4001')
    assert changed != stored

    def put(card: str) -> None:
        with place.store.engine.begin() as db:
            db.exec_driver_sql("UPDATE cards SET card = ? WHERE view = ?", (card, PUBLIC))

    put(changed)
    assert b"Does not verify: signature" in get(server, f"/campaigns/{campaign}/card")[2]
    eventually(lambda: b"do not hold" in get(server, f"/campaigns/{campaign}")[2])
    eventually(lambda: b"card does not verify" in get(server, "/")[2])
    put(stored)


def test_gauges_say_what_the_store_says(shown: Shown) -> None:
    """Reports, rounds and rejections of every campaign, and transactions of this process, in
    Prometheus' format."""
    place, server, campaign = shown
    other, token = place.campaign(plan_now(variant="one-shot")), place.enrol("other")
    eventually(lambda: place.store.rounds(other))
    time.sleep(0.5)
    assert Wire(server, other, token).submit(b"\xff\x01") == "MALFORMED"
    assert Wire(server, other, "wrong").submit(b"") == "UNAUTHENTICATED"
    eventually(lambda: all(views.rejected(place.store.engine, name) for name in (other, "")))

    def gauges() -> dict[tuple[str, ...], float]:
        text = get(server, "/metrics")[2].decode()
        found = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]
        return {(sample.name, *sample.labels.values()): sample.value for sample in found}

    found = gauges()
    assert found["confide_reports_total", campaign] == 4_000
    assert found["confide_rounds", campaign] == len(place.store.rounds(campaign))
    assert found["confide_campaign", campaign, "bits:certified", "calibrated"] == 1
    assert found["confide_rejections_total", other, "MALFORMED"] == 1
    assert found["confide_rejections_total", "", "UNAUTHENTICATED"] == 1
    assert ("confide_round_deadline_seconds", other) in found
    assert ("confide_round_deadline_seconds", campaign) not in found
    assert found["confide_transactions_total",] >= 2
    assert (found["confide_healthy",], found["confide_transaction_failures_total",]) == (1, 0)
    assert get(server, "/healthz")[::2] == (200, b"ok\n")


def test_who_connects_and_asks_nothing_is_cut_off(shown: Shown) -> None:
    """An idle connection, and one that never ends its question, take nobody's place for long; HEAD
    of events is no stream."""
    port = page_port(shown.server)
    with (
        socket.create_connection(("127.0.0.1", port)) as idle,
        socket.create_connection(("127.0.0.1", port)) as slow,
    ):
        slow.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for link in (idle, slow):
            link.settimeout(60)
            assert link.recv(1) == b""
    assert get(shown.server, "/events", method="HEAD")[::2] == (200, b"")


@needs_browser
def test_a_hostile_name_does_no_harm_in_a_browser(shown: Shown, chromium: Any) -> None:
    """No script of a name runs; were it in the page unescaped, the policy of the page would still
    stop it."""
    page = chromium.new_page()
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    for path in shown.paths:
        page.goto(f"http://127.0.0.1:{page_port(shown.server)}{path}")
        assert EVIL in page.inner_text("main"), path
        if not path.endswith("card"):
            page.get_by_text("live", exact=True).wait_for()
        assert page.evaluate("window.hacked") is None, path
        planted = (
            "const s = document.createElement('script'); s.text = 'window.hacked = 3'; "
            "document.body.append(s)"
        )
        page.evaluate(planted)
        assert page.evaluate("window.hacked") is None, path
    # Where nothing forbids it, the same script does run.
    page.goto("about:blank")
    page.evaluate(planted)
    assert page.evaluate("window.hacked") == 3
    page.close()


@needs_browser
def test_pages_fit_a_phone_and_work_without_scripts(shown: Shown, chromium: Any) -> None:
    """Nothing is wider than the screen, every page has a title, one heading and a main part, and no
    script is needed."""
    for scripts in (True, False):
        context = chromium.new_context(
            viewport={"width": 360, "height": 740}, java_script_enabled=scripts
        )
        page = context.new_page()
        for path in shown.paths:
            page.goto(f"http://127.0.0.1:{page_port(shown.server)}{path}")
            assert page.locator("h1").count() == 1
            assert page.locator("main").count() == 1
            assert page.title()
            assert page.locator("table:visible, dl:visible").count()
            if scripts:
                assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
            elif not path.endswith("card"):
                assert "refresh" in page.content()
        context.close()


@needs_browser
def test_a_card_prints_with_its_fields_and_without_the_page_around_it(
    shown: Shown, chromium: Any, tmp_path: Path
) -> None:
    """On as many sheets as the file that is downloaded, and on light paper also where the screen is
    dark; on the screen the fields are folded."""
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{page_port(shown.server)}{shown.paths[2]}")
    around, fields = page.locator("header, footer, .screen"), page.locator("details table")
    assert [around.nth(i).is_visible() for i in range(around.count())] == [True] * 4
    assert fields.count() > 5
    assert not fields.first.is_visible()
    sheets = page_count(page.pdf())
    page.emulate_media(media="print", color_scheme="dark")
    assert not any(around.nth(i).is_visible() for i in range(around.count()))
    assert all(fields.nth(i).is_visible() for i in range(fields.count()))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    (tmp_path / "card.html").write_bytes(get(shown.server, f"{shown.paths[2]}.html")[2])
    page.goto((tmp_path / "card.html").as_uri())
    assert abs(sheets - page_count(page.pdf())) <= 1
    assert sheets >= 2
    context.close()


def page_count(document: bytes) -> int:
    """The pages of a PDF that Chromium wrote, which lists them uncompressed."""
    return len(re.findall(rb"/Type\s*/Page\b", document))
