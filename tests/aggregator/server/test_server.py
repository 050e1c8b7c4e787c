import contextlib
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.campaigns.releases import read_release
from confide.aggregator.procedures.central import Draw
from confide.aggregator.quantiles.base import Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram
from confide.aggregator.server.grpc_server import HANDSHAKE_SECONDS, IDLE_SECONDS
from confide.aggregator.storage import views
from confide.aggregator.web.search_progress import points
from confide.protocol.cards.card import AUDITOR, PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.plan import Plan, digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION
from confide.protocol.wire.service import AUTHORIZATION, CALLS, CAMPAIGN, LARGEST_PIECE, MESSAGES
from tests.support.answers import answer as packed
from tests.support.answers import bit_batch, one_part, owner_counts
from tests.support.central import NOISED, OPEN_POLICY, TRUSTED
from tests.support.hostile import Raw, Wire, fuzz
from tests.support.owners import LABEL_PLAN, PLAN, asking, changed, owner, signed
from tests.support.servers import (
    Place,
    Running,
    aggregator,
    contribution,
    eventually,
    plan_now,
    together,
)


def undisturbed(plan: Plan, folder: Path, *, owners: int, n: int, **given: Any) -> Any:
    """The same seeded owners, asked in process."""
    folder.mkdir()
    made = [
        owner(folder / str(i), seed=i, n=n, policy=OPEN_POLICY, now=lambda: datetime.now(UTC))
        for i in range(owners)
    ]
    return run_campaign(plan, asking(signed(plan), made), **given)


def repeated(kept: str | None) -> Draw:
    """A draw that was made before."""

    def draw(mechanism: Mechanism, histogram: Histogram, rank: int) -> Release:
        assert kept is not None
        return read_release(kept, mechanism, rank, where="the store")

    return draw


def test_campaigns_over_the_network_are_those_in_process(place: Place, tmp_path: Path) -> None:
    """Bits, labels, trusted and noised counts, all at once on one server: the certificates of the
    same reports in process."""
    randomised = changed(LABEL_PLAN, score="aps-randomized")
    plans = {
        name: plan_now(base, campaign=name)
        for name, base in {
            "bits": PLAN,
            "labels": LABEL_PLAN,
            "randomised": randomised,
            "trusted": TRUSTED,
            "noised": NOISED,
        }.items()
    }
    ids = {name: place.campaign(plan, owners=3) for name, plan in plans.items()}
    server = place.serve()
    tokens = [place.enrol(f"owner {i}") for i in range(3)]

    def take_part(job: int) -> int:
        name, i = list(plans)[job // 3], job % 3
        folder = tmp_path / f"{name}{i}"
        part = contribution(
            server.access(tokens[i]), plans[name], folder, seed=i, n=2_000, policy=OPEN_POLICY
        )
        return part.watch().reports

    together(3 * len(plans), take_part)
    eventually(lambda: {one.state for one in place.store.campaigns()} == {"calibrated"})
    for name, plan in plans.items():
        kept = place.store.release(ids[name])
        outcome = undisturbed(
            plan, tmp_path / f"in-process {name}", owners=3, n=2_000, draw=repeated(kept)
        )
        card = parse_card(place.store.card(ids[name], PUBLIC) or "")
        assert all(finding.holds for finding in verify(card)), name
        assert card.provenance["received"] == outcome.received, name
        assert card.formal["released"]["threshold"] == outcome.certificate.threshold, name
        assert outcome.certificate.n == 6_000
    assert place.store.card(ids["trusted"], AUDITOR) is not None
    asked = points(place.store.campaign(ids["noised"]), place.store.rounds(ids["noised"]))
    assert [point.round for point in asked] == list(range(8))
    assert server.stop() == 0
    assert not [event for event in server.events() if event["level"] != "info"]


def test_hostile_input_is_refused_by_name_and_changes_nothing(place: Place, tmp_path: Path) -> None:
    """Every attack gets its code and is counted; the honest owner's reports, and only they, make
    the campaign."""
    plan = plan_now(variant="one-shot", expected_records=2_000)
    campaign = place.campaign(plan)
    good, bad = place.enrol("good"), place.enrol("bad")
    options = (
        "--message-bytes",
        str(LARGEST_PIECE),
        "--idle-seconds",
        "4",
        "--rate",
        "300",
        "--open-calls",
        "3",
    )
    server = place.serve(*options)
    eventually(lambda: place.store.rounds(campaign))
    name, hand = digest(plan.to_bytes()), Wire(server, campaign, bad)

    def answer(n: int = 3, round_: int = 0, plan: bytes = name) -> bytes:
        return packed(bit_batch(n), round_=round_, plan=plan)

    def altered(**fields: bytes) -> bytes:
        message = wire.Answer.FromString(answer(10))
        for field, value in fields.items():
            setattr(message.batch, field, value)
        return message.SerializeToString()

    reports = wire.BitReports.FromString(wire.Answer.FromString(answer(10)).batch.body)
    reports.parts = b"\xff\xff" * 10
    beyond = reports.SerializeToString()
    attacks = {
        b"\xff\x01random": "MALFORMED",
        answer()[:-3]: "MALFORMED",
        b"": "WRONG_VERSION",
        answer(plan=b"x" * 32): "WRONG_PLAN",
        answer(round_=7): "WRONG_ROUND",
        altered(body=beyond): "OUT_OF_ALPHABET",
        altered(ids=b"x" * 17): "MALFORMED",
        altered(body=beyond + b"1234"): "MALFORMED",
        answer(62_000): "TOO_LARGE",
    }
    for attack, code in attacks.items():
        assert hand.submit(attack) == code
    assert "larger than max" in hand.submit(bytes(3 * LARGEST_PIECE))
    assert Wire(server, "f" * 16, bad).submit(answer()) == "UNKNOWN_CAMPAIGN"
    assert Wire(server, campaign, "made up").submit(answer()) == "UNAUTHENTICATED"

    def slowly() -> Iterator[bytes]:
        time.sleep(8)
        yield answer()

    started = time.monotonic()
    assert set(together(4, lambda i: hand.stream(slowly()))) == {"TIMED_OUT", "RATE_LIMITED"}
    assert time.monotonic() - started < 30
    rng = np.random.default_rng(1)
    assert fuzz(hand, answer(20), 1_000, rng) <= {
        "MALFORMED",
        "WRONG_VERSION",
        "RATE_LIMITED",
        "WRONG_PLAN",
        "WRONG_ROUND",
    }
    time.sleep(1)
    # A flood of valid messages: what was taken before the limit is counted as what it is.
    flood = Wire(server, campaign, place.enrol("flood"))
    assert flood.submit(*[answer(1)] * 3_000) == "RATE_LIMITED"
    left = contribution(server.access(good), plan, tmp_path / "o", seed=1, n=2_000).once()
    assert left.reports == 2_000
    place.store.close(campaign, now=time.time())
    eventually(lambda: place.store.campaign(campaign).state == "calibrated")
    card = parse_card(place.store.card(campaign, PUBLIC) or "")
    # One report of the flood's, sent many times.
    assert card.formal["certificate"]["n"] == 2_001
    counted = views.rejected(place.store.engine, campaign)
    assert {
        "MALFORMED",
        "WRONG_PLAN",
        "OUT_OF_ALPHABET",
        "TOO_LARGE",
        "TIMED_OUT",
        "RATE_LIMITED",
    } <= set(counted)
    assert views.rejected(place.store.engine, "") == {"UNKNOWN_CAMPAIGN": 1, "UNAUTHENTICATED": 1}
    assert set(views.rejected(place.store.engine, campaign)) <= set(wire.Code.keys())
    assert server.process.poll() is None
    assert not [event for event in server.events() if event["level"] == "error"]


def padding(field: int, size: int) -> bytes:
    """A field of bytes on the wire, of any number."""
    return _varint(field << 3 | 2) + _varint(size) + bytes(size)


def _varint(value: int) -> bytes:
    return bytes([value & 127]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def test_bytes_that_no_field_needs_are_not_stored(place: Place) -> None:
    """Reports with unknown fields around or inside the batch, with a field sent twice, or with a
    number spelled too long are MALFORMED: nothing of them is stored, and the same report as it
    should be is."""
    plan = plan_now(variant="one-shot")
    campaign, server, token = place.campaign(plan), place.serve(), place.enrol("owner")
    eventually(lambda: place.store.rounds(campaign))
    hand, size = Wire(server, campaign, token), 100_000

    def report(number: int) -> wire.Answer:
        return wire.Answer.FromString(
            packed(bit_batch(1, first=number), plan=digest(plan.to_bytes()))
        )

    def inside(number: int, extra: bytes) -> bytes:
        batch = report(number).batch.SerializeToString() + extra
        return b"\x08\x02" + _varint(3 << 3 | 2) + _varint(len(batch)) + batch

    whole = [report(number).SerializeToString() for number in range(40)]
    attacks = [one + padding(99, size) for one in whole[:10]]
    attacks += [inside(number, padding(99, size)) for number in range(10, 20)]
    # The last of a field counts: the ids that come first are carried along.
    attacks += [
        inside(number, padding(4, size) + b"\x22\x10" + report(number).batch.ids)
        for number in range(20, 30)
    ]
    # The number 2 in nine bytes.
    attacks += [b"\x08" + b"\x82" + b"\x80" * 7 + b"\x00" + one[2:] for one in whole[30:]]
    assert {hand.submit(attack) for attack in attacks} == {"MALFORMED"}
    assert views.stored_batches(place.store.engine, campaign) == 0
    assert hand.submit(*whole) == "OK"
    assert views.stored_batches(place.store.engine, campaign) == 40
    eventually(lambda: views.rejected(place.store.engine, campaign) == {"MALFORMED": 40})


@pytest.fixture
def raw() -> Iterator[Callable[[Running], Raw]]:
    """Makes connections that end with the test."""
    with contextlib.ExitStack() as held:
        yield lambda server: held.enter_context(Raw(server.port, server.place.keys / "ca.pem"))


def test_messages_that_are_not_finished_fill_no_memory(
    place: Place, raw: Callable[[Running], Raw]
) -> None:
    """Of 192 streams of 24 owners that each stop before the end of the largest message only some
    are let in, while another owner asks and sends as ever. Bound: 64 MB of messages on their way, a
    window a stream, and as much again for copies."""
    plan = plan_now(variant="one-shot")
    campaign, honest, tokens = (
        place.campaign(plan),
        place.enrol("honest"),
        [place.enrol(f"owner {i}") for i in range(24)],
    )
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    hand = Wire(server, campaign, honest)
    report = packed(bit_batch(1), plan=digest(plan.to_bytes()))
    assert hand.submit(report) == "OK"
    before, connections = server.megabytes, [raw(server) for _ in range(192)]
    for number, one in enumerate(connections):
        metadata = (CAMPAIGN, campaign), (AUTHORIZATION, f"Bearer {tokens[number // 8]}")
        one.socket.sendall(one.opened(CALLS["Submit"].path, *metadata))
    for _ in range(4):
        for one in connections:
            one.push(LARGEST_PIECE)
        assert hand.submit(report) == "OK"
    assert 10 << 20 < sum(one.sent for one in connections) < (64 << 20) + 192 * (1 << 17)
    assert server.megabytes - before < 200


def owned(place: Place) -> tuple[str, str]:
    """An open campaign and the token of an owner."""
    return place.campaign(plan_now(variant="one-shot")), place.enrol("owner")


def test_idle_connections_close_no_door(place: Place, raw: Callable[[Running], Raw]) -> None:
    """A process that was started with 256 files and may have more takes 300 connections without a
    token, an owner beside them and its database; those that say nothing, before TLS or after it,
    are closed soon."""
    campaign, token = owned(place)
    server = place.serve(through=("prlimit", "--nofile=256:8192"))
    eventually(lambda: place.store.rounds(campaign))
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(10)]
    held = [raw(server) for _ in range(300)]
    assert Wire(server, campaign, token).submit(b"\xff") == "MALFORMED"
    began = time.monotonic()
    for one in silent:
        with one:
            assert one.recv(1) == b""
    assert time.monotonic() - began < HANDSHAKE_SECONDS + 10
    eventually(lambda: all(one.gone() for one in held), seconds=IDLE_SECONDS + 30)
    assert not [event for event in server.events() if event["level"] != "info"]


def test_one_connection_too_many_is_closed_and_costs_nobody(
    place: Place, raw: Callable[[Running], Raw]
) -> None:
    """With 256 files and no more to have, half of them are for connections, which the log says; the
    database stays in reach, and an owner that was there already goes on. When strangers'
    connections have been closed others come in."""
    campaign, token = owned(place)
    server = place.serve(through=("prlimit", "--nofile=256:256"))
    eventually(lambda: place.store.rounds(campaign))
    hand, held = Wire(server, campaign, token), list[Raw]()
    assert hand.submit(b"\xff") == "MALFORMED"
    for _ in range(300):
        with contextlib.suppress(OSError):
            held.append(raw(server))
    assert 100 < len(held) < 128
    # Its own connection, and an answer for which the database is asked again.
    assert hand.submit(b"\xff") == "MALFORMED"
    assert Wire(server, campaign, place.enrol("another")).submit(b"") != "WRONG_VERSION"
    eventually(
        lambda: Wire(server, campaign, token).submit(b"") == "WRONG_VERSION",
        seconds=IDLE_SECONDS + 30,
    )
    said = [event for event in server.events() if event["level"] != "info"]
    assert [(event["files"], event["connections"]) for event in said] == [(256, 128)]


def test_streams_given_up_at_once_keep_nobody_waiting(
    place: Place, raw: Callable[[Running], Raw]
) -> None:
    """Whoever opens and leaves streams, thousands in a moment and without a token, is cut off or
    waits; an owner is served meanwhile, and what was left is not worked through for long after."""
    campaign, token = owned(place)
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    hand, path = Wire(server, campaign, token), CALLS["PollQuery"].path
    assert hand.submit(b"") == "WRONG_VERSION"
    hostile = [raw(server) for _ in range(4)]
    for _ in range(20):
        for number, one in enumerate(hostile):
            try:
                one.socket.sendall(b"".join(one.left(path) for _ in range(250)))
            except OSError:
                hostile[number] = raw(server)
        assert hand.submit(b"") == "WRONG_VERSION"
    # Calls that were never looked at are not counted as refused: of 20,000 streams few have become
    # calls.
    time.sleep(1)
    assert views.rejected(place.store.engine, "").get("UNAUTHENTICATED", 0) < 20_000 // 2
    assert server.process.poll() is None


def test_histograms_that_do_not_fit_are_told_of(place: Place) -> None:
    """They cannot be split: of a campaign whose answers are larger than `--message-bytes` they are
    refused, and the log says so once; one of fewer bins is not spoken of. A server with a larger
    limit takes both."""
    plans = [plan_now(TRUSTED, bins=bins, campaign=str(bins)) for bins in (130_000, 140_000)]
    fits, large = (place.campaign(plan) for plan in plans)
    server, larger, token = (
        place.serve(),
        place.serve("--message-bytes", str(4 << 20)),
        place.enrol("owner"),
    )

    def taken(running: Running, name: str) -> str:
        return Wire(running, name, token).submit(owner_counts(plans[name == large], 3))

    eventually(lambda: taken(server, fits) == "OK")
    eventually(lambda: taken(server, large) == "TOO_LARGE")

    def told(running: Running) -> list[str]:
        return [
            one["campaign"]
            for one in running.events()
            if one["event"] == "answers are larger than --message-bytes"
        ]

    eventually(lambda: told(server))
    eventually(lambda: taken(larger, large) == "OK")
    assert (told(server), told(larger)) == ([large], [])


@pytest.mark.parametrize(
    ("code", "settings"), [("LATE", {"round_seconds": 0.5}), ("SURPLUS", {"enough": 5})]
)
def test_late_and_surplus_reports_are_counted_and_not_used(
    code: str, settings: dict[str, Any], place: Place
) -> None:
    """A round that ended by its deadline answers LATE, one that had enough SURPLUS; neither is
    stored. What was stays OK."""
    server, token = place.serve(), place.enrol("owner")
    plan = plan_now(variant="published", minimum_reports=0)
    campaign = place.campaign(plan, **settings)

    def answer(first: int) -> bytes:
        return packed(one_part(bit_batch(6, first=first)), plan=digest(plan.to_bytes()))

    hand = Wire(server, campaign, token)
    eventually(lambda: hand.announced(answer(0)) == "OK")
    eventually(lambda: len(place.store.rounds(campaign)) > 1)
    eventually(lambda: hand.announced(answer(6)) == code)
    assert hand.announced(answer(0)) == "OK"
    assert views.stored_batches(place.store.engine, campaign) == 1
    eventually(lambda: views.rejected(place.store.engine, campaign).get(code) == 1)


def test_an_owner_with_nothing_to_say_is_heard_and_is_no_evidence(place: Place) -> None:
    """One sends reports, one nothing, one declines: `owners` lets the round end, `minimum_owners`
    waits for more reports."""
    server, tokens = place.serve(), [place.enrol(f"owner {i}") for i in range(3)]
    declined = wire.Answer(version=VERSION, code=wire.Code.METHOD_NOT_ALLOWED).SerializeToString()

    def answered(minimum_owners: int = 1, **settings: Any) -> tuple[str, Wire, bytes]:
        """A campaign that the three have answered; the one that declined, and what it could have
        sent."""
        plan = plan_now(
            campaign=str(settings),
            variant="published",
            minimum_reports=0,
            minimum_owners=minimum_owners,
        )
        campaign = place.campaign(plan, **settings)
        hands = [Wire(server, campaign, token) for token in tokens]

        def report(first: int) -> bytes:
            return packed(one_part(bit_batch(6, first=first)), plan=digest(plan.to_bytes()))

        eventually(lambda: hands[0].announced(report(0)) == "OK")
        assert hands[1].stream(iter([]), (MESSAGES, "0")) == "OK"
        assert hands[2].announced(declined) == "METHOD_NOT_ALLOWED"
        assert place.store.turnout(campaign, 0) == (3, 1, 6)
        return campaign, hands[2], report(6)

    evidence, hand, other = answered(round_seconds=0.1, minimum_owners=2)
    everybody, _, _ = answered(owners=3)
    eventually(lambda: place.store.rounds(everybody)[0].because == "enough")
    assert place.store.rounds(evidence)[0].closed is None
    assert hand.announced(other) == "OK"
    eventually(lambda: place.store.rounds(evidence)[0].because == "deadline")


def test_a_campaign_that_cannot_go_on_holds_up_no_other(place: Place) -> None:
    """More records than any procedure takes, of one owner or of all together, and a plan or
    settings of another version: each stops its own campaign, later ones run, and no count of
    anybody is in the log."""
    poisoned, later = plan_now(TRUSTED), plan_now(variant="one-shot", campaign="later")
    campaign, tokens = (
        place.campaign(poisoned, owners=2),
        [place.enrol(name, records=10**9) for name in ("one", "other")],
    )
    foreign = [
        place.campaign(plan_now(campaign=f"of another version {number}")) for number in range(3)
    ]
    other_version = wire.SignedPlan(
        plan=wire.Plan(version=99).SerializeToString()
    ).SerializeToString()
    with place.store.engine.begin() as db:
        db.exec_driver_sql(
            "UPDATE campaigns SET signed_plan = ? WHERE id = ?", (other_version, foreign[0])
        )
        for name, settings in zip(
            foreign[1:], ('{"round_seconds": 0}', '{"unheard": 1}'), strict=True
        ):
            db.exec_driver_sql("UPDATE campaigns SET settings = ? WHERE id = ?", (settings, name))
    server = place.serve("--http", "0")
    eventually(lambda: place.store.rounds(campaign))
    hands = [Wire(server, campaign, token) for token in tokens]
    eventually(lambda: hands[0].announced(owner_counts(poisoned, 2**33)) == "OUT_OF_ALPHABET")
    each = 876_543_219
    assert [hand.announced(owner_counts(poisoned, each)) for hand in hands] == ["OK", "OK"]
    eventually(lambda: place.store.campaign(campaign).reason)
    assert place.store.campaign(campaign).state == "closed"
    assert place.store.release(campaign) is None
    # They are not this version's to end, to lead or to take answers for.
    assert {place.store.campaign(name).state for name in foreign} == {"open"}
    with place.store.engine.connect() as db:
        leaders = {
            row.id: row.leader for row in db.exec_driver_sql("SELECT id, leader FROM campaigns")
        }
    assert [leaders[name] for name in foreign] == [None] * 3
    assert {Wire(server, name, tokens[0]).submit(b"") for name in foreign} == {"UNKNOWN_CAMPAIGN"}
    after = place.campaign(later)
    eventually(lambda: place.store.rounds(after))
    assert [event["event"] for event in server.events()].count("a campaign stands still") == 3
    assert not [
        number for number in (each, 2 * each, 2**33) if str(number) in server.log.read_text()
    ]
    code, text = aggregator("campaign", "status", "--db", place.url)
    assert (code, [name for name in foreign if f"{name}  of another version" not in text]) == (
        0,
        [],
    )
    for name in foreign:
        assert aggregator("campaign", "status", name, "--json", "--db", place.url) == (2, "")
        assert (
            aggregator("campaign", "export", name, place.folder / "out", "--db", place.url)[0] == 2
        )
    port = next(event["address"] for event in server.events() if event["event"] == "page")
    pages = {
        path: urllib.request.urlopen(f"{port}{path}", timeout=30).read().decode()
        for path in ("", "metrics")
    }
    assert all(name in pages[""] for name in foreign)
    assert "confide_campaigns_stuck 3.0" in pages["metrics"]
