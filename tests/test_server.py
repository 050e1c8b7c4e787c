import contextlib
import os
import signal
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from aggregator import views
from aggregator.campaigns import run_campaign
from aggregator.central import Draw
from aggregator.cli import app as aggregator_app
from aggregator.deposit import Packed, Parcel
from aggregator.keys import SIGNING_KEY
from aggregator.quantiles.histogram import Histogram
from aggregator.quantiles.mechanism import Mechanism, Release
from aggregator.releases import read_release
from aggregator.schema import metadata
from aggregator.trail import points
from aggregator.vitals import Vitals
from aggregator.writer import IDLE_SECONDS, Writer
from client.cli import app as client_app
from client.grpc_client import Aggregator
from client.ledger import Ledger
from client.patience import Patience, Unreachable
from protocol import wire_pb2 as wire
from protocol.campaign import VERSION, Plan, digest
from protocol.card import AUDITOR, PUBLIC, parse_card
from protocol.channels import Bit
from protocol.messages import OwnerAnswer, write_owner_answer
from protocol.service import MESSAGES, PIECE_BYTES, SERVICE
from protocol.verify import verify
from tests.chaos import came, chaos, in_peace, leader, under_way
from tests.disks import Disk, PostgresDisk, SqliteDisk, obeying_modes
from tests.hostile import Wire, fuzz
from tests.owners import LABEL_PLAN, PLAN, POLICY, asking, owner, signed
from tests.owners import PUBLIC as PUBLIC_KEY
from tests.owners import records as owner_records
from tests.postgres import binaries, postgres
from tests.servers import Place, contribution, eventually, plan_now, together
from tests.test_central import CENTRAL, NOISED, TRUSTED
from tests.test_wire import answer as packed
from tests.test_wire import bit_batch

OPEN_POLICY = replace(CENTRAL, methods=POLICY.methods | CENTRAL.methods, epsilon_per_record=20.0)
needs_postgres = pytest.mark.skipif(binaries() is None, reason="no PostgreSQL: neither the package pgserver nor initdb here")
DATABASES = [pytest.param("sqlite"), pytest.param("postgres", marks=needs_postgres)]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """URLs of empty databases by kind; one PostgreSQL serves the whole module."""
    if binaries() is None:
        yield lambda kind: ""
        return
    with postgres(Path("/tmp")) as url:
        made = 0

        def empty(kind: str) -> str:
            nonlocal made
            if kind == "sqlite":
                return ""
            made += 1
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(f"CREATE DATABASE test{made}".encode())
            return url.replace("/postgres?", f"/test{made}?")

        yield empty


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "aggregator")
    yield made
    made.close()


def undisturbed(plan: Plan, folder: Path, *, owners: int, n: int, **given: Any) -> Any:
    """The same seeded owners, asked in process."""
    folder.mkdir()
    made = [owner(folder / str(i), seed=i, n=n, policy=OPEN_POLICY, now=lambda: datetime.now(UTC)) for i in range(owners)]
    return run_campaign(plan, asking(signed(plan), made), **given)


def repeated(kept: str | None) -> Draw:
    """A draw that was made before."""

    def draw(mechanism: Mechanism, histogram: Histogram, rank: int) -> Release:
        assert kept is not None
        return read_release(kept, mechanism, rank, where="the store")

    return draw


def test_campaigns_over_the_network_are_those_in_process(place: Place, tmp_path: Path) -> None:
    """Bits, labels, trusted and noised counts, all at once on one server: the certificates of the same reports in process."""
    plans = {name: plan_now(base, campaign=name) for name, base in
             {"bits": PLAN, "labels": LABEL_PLAN, "trusted": TRUSTED, "noised": NOISED}.items()}  # fmt: skip
    ids = {name: place.campaign(plan, owners=3) for name, plan in plans.items()}
    server = place.serve()
    tokens = [place.enrol(f"owner {i}") for i in range(3)]

    def take_part(job: int) -> int:
        name, i = list(plans)[job // 3], job % 3
        folder = tmp_path / f"{name}{i}"
        part = contribution(server.access(tokens[i]), plans[name], folder, seed=i, n=2_000, policy=OPEN_POLICY)
        return part.watch().reports

    together(12, take_part)
    eventually(lambda: {one.state for one in place.store.campaigns()} == {"calibrated"})
    for name, plan in plans.items():
        kept = place.store.release(ids[name])
        outcome = undisturbed(plan, tmp_path / f"in-process {name}", owners=3, n=2_000, draw=repeated(kept))
        card = parse_card(place.store.card(ids[name], PUBLIC) or "")
        assert all(finding.holds for finding in verify(card)), name
        assert card.provenance["received"] == outcome.received, name
        shown = card.formal["released"] if plan.central else card.formal["certificate"]
        assert shown["threshold"] == outcome.certificate.threshold, name
        assert outcome.certificate.n == 6_000
    assert place.store.card(ids["trusted"], AUDITOR) is not None
    asked = points(place.store.campaign(ids["noised"]), place.store.rounds(ids["noised"]))
    assert [point.round for point in asked] == list(range(8))
    assert server.stop() == 0
    assert not [event for event in server.events() if event["level"] != "info"]


@pytest.mark.parametrize("kind", DATABASES)
def test_killed_at_random_every_acknowledged_report_counts_once(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:  # fmt: skip
    """kill -9 of server and clients during a campaign of 20 owners and 10,000 reports: all comes out as if nothing had been."""
    place = Place(tmp_path / "aggregator", database(kind))
    try:
        plan = plan_now(expected_records=10_000)
        found = chaos(place, plan, tmp_path / "owners", owners=20, processes=1, n=500, kills=2, client_kills=1, seed=len(kind))
        assert (found.servers_killed, found.clients_killed) == (2, 1)
        assert found.disturbed == found.quiet
        assert found.disturbed.stored == found.disturbed.acknowledged
        assert len(set(found.disturbed.stored)) == found.disturbed.formal["certificate"]["n"] == 10_000
    finally:
        place.close()


@needs_postgres
def test_another_server_takes_over_from_a_killed_leader(database: Callable[[str], str], tmp_path: Path) -> None:
    """Two servers on one PostgreSQL, half of the owners at each; the leader dies while a round's reports come in, and the other
    leads before it is back. All comes out as with one server in peace, every report stored once."""
    place, owners, n = Place(tmp_path / "aggregator", database("postgres")), 8, 750
    try:
        plan = plan_now()
        campaign = place.campaign(plan, owners=owners)
        servers = [place.serve(), place.serve()]
        access = [servers[i % 2].access(place.enrol(f"owner {i}")) for i in range(owners)]

        def take_part(i: int) -> int:
            if i == owners:
                first = leader(place, campaign, servers)
                eventually(lambda: len(place.store.rounds(campaign)) > 1 and under_way(place, campaign, owners))
                first.kill()
                eventually(lambda: leader(place, campaign, servers) is not first)
                # Owners of the dead server find it again under its address.
                place.serve(port=first.port)
                return 0
            return int(contribution(access[i], plan, tmp_path / "owners" / f"{i}", seed=i, n=n).watch().reports)

        (tmp_path / "owners").mkdir()
        assert together(owners + 1, take_part) == [n] * owners + [0]
        found = came(place, campaign, tmp_path / "owners")
        assert found == in_peace(plan, tmp_path / "in peace", owners=owners, n=n)
        assert found.stored == found.acknowledged
        assert len(set(found.stored)) == len(found.stored) == found.formal["certificate"]["n"] == owners * n
    finally:
        place.close()


@pytest.mark.parametrize("kind", DATABASES)
def test_a_disk_that_is_full_or_read_only_acknowledges_nothing(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:  # fmt: skip
    """First the disk is full, then it may only be read: no receipt, not healthy, and the log says why. Once it is well the same
    server is healthy again before anybody comes, and the same client gets through, once."""
    place = Place(tmp_path / "aggregator", database(kind))
    plan = plan_now(variant="one-shot", expected_records=20_000)
    campaign, token = place.campaign(plan, owners=1), place.enrol("owner")
    server = place.serve(through=obeying_modes())
    disk: Disk = SqliteDisk(place, server) if kind == "sqlite" else PostgresDisk(place, campaign)
    checks = health_pb2_grpc.HealthStub(Wire(server, campaign, token).channel)

    health: list[int] = []
    up, down = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING

    def look() -> None:
        with contextlib.suppress(grpc.RpcError):
            health.extend(reply.status for reply in checks.Watch(health_pb2.HealthCheckRequest(service=SERVICE)))

    def failures() -> list[str]:
        return [str(event.get("reason", "")) for event in server.events() if event["level"] == "error"]

    def refused(reason: str) -> None:
        before = len(health)
        with pytest.raises(Unreachable, match="UNAVAILABLE"):
            contribution(server.access(token), plan, tmp_path / "o", seed=1, n=20_000, patience=1).once()
        eventually(lambda: down in health[before - 1 :])
        assert any(reason in failure for failure in failures()), failures()
        assert len(Ledger(tmp_path / "o/ledger.sqlite").unacknowledged(digest(plan.to_bytes()))) == 1
        assert place.store.turnout(campaign, 0) == (0, 0, 0)

    try:
        threading.Thread(target=look, daemon=True).start()
        eventually(lambda: place.store.rounds(campaign) and health and health[-1] == up)
        disk.fill()
        # Long enough for the writer to find nothing to do, and to tidy up in vain.
        time.sleep(2 * IDLE_SECONDS)
        refused(disk.full)
        disk.lock()
        # What fails from now on opens its connections anew, and finds them read-only.
        before = len(failures())
        eventually(lambda: len(failures()) > before + 1)
        disk.empty()
        refused(disk.locked)
        disk.unlock()
        eventually(lambda: health[-1] == up)
        left = contribution(server.access(token), plan, tmp_path / "o", seed=1, n=20_000).watch()
        assert (left.reports, dict(left.rounds)) == (20_000, {"OK": 1})
        assert came(place, campaign, tmp_path).formal["certificate"]["n"] == 20_000
        assert place.store.turnout(campaign, 0) == (1, 1, 20_000)
        assert views.rejected(place.store.engine, campaign)["UNAVAILABLE"] > 0
    finally:
        disk.empty()
        disk.unlock()
        place.close()


def test_hostile_input_is_refused_by_name_and_changes_nothing(place: Place, tmp_path: Path) -> None:
    """Every attack gets its code and is counted; the honest owner's reports, and only they, make the campaign."""
    plan = plan_now(variant="one-shot", expected_records=2_000)
    campaign = place.campaign(plan)
    good, bad = place.enrol("good"), place.enrol("bad")
    options = ("--message-bytes", str(PIECE_BYTES), "--idle-seconds", "4", "--rate", "300", "--open-calls", "3")
    server = place.serve(*options)
    eventually(lambda: place.store.rounds(campaign))
    name, channel, hand = digest(plan.to_bytes()), Bit(epsilon=4.0), Wire(server, campaign, bad)

    def answer(n: int = 3, round_: int = 0, plan: bytes = name) -> bytes:
        return packed(bit_batch(n), round_=round_, plan=plan, channel=channel)

    def changed(**fields: bytes) -> bytes:
        message = wire.Answer.FromString(answer(10))
        for field, value in fields.items():
            setattr(message.batch, field, value)
        return message.SerializeToString()

    attacks = {
        b"\xff\x01random": "MALFORMED",
        answer()[:-3]: "MALFORMED",
        b"": "WRONG_VERSION",
        answer(plan=b"x" * 32): "WRONG_PLAN",
        answer(round_=7): "WRONG_ROUND",
        changed(parts=b"\xff\xff" * 10): "OUT_OF_ALPHABET",
        changed(ids=b"x" * 17): "MALFORMED",
        changed(weights=b"1234"): "MALFORMED",
        answer(60_000): "TOO_LARGE",
    }
    for attack, code in attacks.items():
        assert hand.submit(attack) == code
    assert "larger than max" in hand.submit(bytes(3 * PIECE_BYTES))
    assert Wire(server, "f" * 16, bad).submit(answer()) == "UNKNOWN_CAMPAIGN"
    assert Wire(server, campaign, "made up").submit(answer()) == "UNAUTHENTICATED"

    def slowly() -> Iterator[bytes]:
        time.sleep(8)
        yield answer()

    started = time.monotonic()
    assert set(together(4, lambda i: hand.stream(slowly()))) == {"TIMED_OUT", "RATE_LIMITED"}
    assert time.monotonic() - started < 30
    rng = np.random.default_rng(1)
    assert fuzz(hand, answer(20), 1_000, rng) <= {"MALFORMED", "WRONG_VERSION", "RATE_LIMITED", "WRONG_PLAN", "WRONG_ROUND"}
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
    assert {"MALFORMED", "WRONG_PLAN", "OUT_OF_ALPHABET", "TOO_LARGE", "TIMED_OUT", "RATE_LIMITED"} <= set(counted)
    assert views.rejected(place.store.engine, "") == {"UNKNOWN_CAMPAIGN": 1, "UNAUTHENTICATED": 1}
    assert set(views.rejected(place.store.engine, campaign)) <= set(wire.Code.keys())
    assert server.process.poll() is None
    assert not [event for event in server.events() if event["level"] == "error"]


def test_the_life_of_a_campaign_on_the_command_line(place: Place, tmp_path: Path) -> None:
    """create, open, contribute, close, publish, export, purge, each as a command; wrong order and wrong input exit with 2."""
    home, records = tmp_path / "home", tmp_path / "records.npz"
    data = owner_records(2_000, 1)
    np.savez(records, probs=data.scored, labels=data.labels, ids=np.arange(2_000))
    assert client("init", "--home", home)[0] == 0
    text = (home / "policy.toml").read_text().replace("aggregators = []", f'aggregators = ["{PUBLIC_KEY.hex()}"]')
    (home / "policy.toml").write_text(text)
    (tmp_path / "campaign.toml").write_text(f'campaign = "bits:one-shot"\nlabels = 5\nmodel = "{"00" * 32}"\nrecords = 2000\n')
    key, db = ("--key", place.keys / SIGNING_KEY), ("--db", place.url)
    assert aggregator("campaign", "create", *key, *db) == (2, "")
    code, made = aggregator("campaign", "create", *key, *db, "--file", tmp_path / "campaign.toml", "--round-seconds", "600")
    assert code == 0
    campaign = made.strip()
    assert aggregator("campaign", "publish", campaign, *db)[0] == 2
    (tmp_path / "token").write_text(aggregator("owner", "add", "me", *db)[1])
    own = tmp_path / "certificate"
    assert aggregator("owner", "certificate", "me", "--keys", place.keys, "--out", own)[0] == 0
    server = place.serve("--client-ca", str(place.keys / "owners.pem"))
    part = (
        "contribute", "--aggregator", f"127.0.0.1:{server.port}", "--campaign", campaign, "--records", records, "--home", home,
        "--ca", place.keys / "ca.pem", "--cert", own / "owner.pem", "--key", own / "owner.key",
        "--token-file", tmp_path / "token", "--once", "--patience", "5",
    )  # fmt: skip
    assert aggregator("campaign", "open", campaign[:6], *db)[0] == 0
    eventually(lambda: place.store.rounds(campaign))
    time.sleep(0.5)
    (home / "policy.toml").write_text(text.replace('methods = ["bits"]', "methods = []"))
    code, said = client(*part, "--watch")
    assert (code, "0 reports" in said, "its method is not among `methods`" in said) == (1, True, True), said
    assert views.received(place.store.engine, campaign) == {"METHOD_NOT_ALLOWED": 1}
    (home / "policy.toml").write_text(text)
    code, said = client(*part)
    assert (code, "2000 reports" in said) == (0, True), said
    assert client(*part, "--aggregator", "127.0.0.1:1", "--patience", "0.1")[0] == 1
    assert client(*part, "--insecure-loopback", "--aggregator", "192.0.2.1:5")[0] == 2
    assert "2000 reports of 1 owners" in aggregator("campaign", "status", *db)[1]
    assert aggregator("campaign", "purge", campaign, *db)[0] == 2
    assert aggregator("campaign", "close", campaign, *db)[0] == 0
    eventually(lambda: place.store.campaign(campaign).state == "calibrated")
    token, pair = (tmp_path / "token").read_text().strip(), [(own / file).read_bytes() for file in ("owner.key", "owner.pem")]
    remote = Aggregator(server.access(token, key=pair[0], certificate=pair[1]), campaign, patience=Patience(5))
    assert remote.card() is None
    assert aggregator("campaign", "publish", campaign, *db)[0] == 0
    assert aggregator("campaign", "export", campaign, tmp_path / "out", *db)[0] == 0
    assert aggregator("campaign", "purge", campaign, *db) == (0, "1 batches deleted\n")
    card = eventually(remote.card)
    assert card == (tmp_path / "out/card.json").read_text()
    assert parse_card(card).formal["certificate"]["n"] == 2_000
    assert views.stored_batches(place.store.engine, campaign) == 0
    assert aggregator("owner", "remove", "me", *db)[0] == 0
    eventually(lambda: Wire(server, campaign, token, tuple(pair)).submit() == "UNAUTHENTICATED")


@pytest.mark.parametrize(
    "options",
    [
        ("--insecure-loopback", "--listen", "0.0.0.0:0"),
        ("--insecure-loopback", "--listen", "confide.example:8443"),
        ("--listen", "127.0.0.1:0"),
        ("--insecure-loopback", "--listen", "nowhere"),
        ("--insecure-loopback", "--db", "/no/such/folder/x.sqlite"),
        ("--insecure-loopback", "--rate", "0"),
        ("--insecure-loopback", "--message-bytes", "100000"),
    ],
)
def test_a_server_that_would_be_unsafe_or_useless_does_not_start(options: tuple[str, ...], place: Place) -> None:
    """Without TLS on an address others can reach, without certificates, with a database that cannot be: exit code 2."""
    assert aggregator("serve", "--key", place.keys / SIGNING_KEY, *options)[0] == 2


@pytest.mark.parametrize(("code", "settings"), [("LATE", {"round_seconds": 0.5}), ("SURPLUS", {"enough": 5})])
def test_late_and_surplus_reports_are_counted_and_not_used(code: str, settings: dict[str, Any], place: Place) -> None:
    """A round that ended by its deadline answers LATE, one that had enough SURPLUS; neither is stored. What was stays OK."""
    server, token = place.serve(), place.enrol("owner")
    plan = plan_now(variant="published", minimum_reports=0)
    campaign = place.campaign(plan, **settings)

    def answer(first: int) -> bytes:
        message = wire.Answer.FromString(packed(bit_batch(6, first=first), plan=digest(plan.to_bytes())))
        message.batch.parts = bytes(12)
        return message.SerializeToString()

    hand = Wire(server, campaign, token)
    eventually(lambda: hand.announced(answer(0)) == "OK")
    eventually(lambda: len(place.store.rounds(campaign)) > 1)
    eventually(lambda: hand.announced(answer(6)) == code)
    assert hand.announced(answer(0)) == "OK"
    assert views.stored_batches(place.store.engine, campaign) == 1
    eventually(lambda: views.rejected(place.store.engine, campaign).get(code) == 1)


def test_an_owner_with_nothing_to_say_is_heard_and_is_no_evidence(place: Place) -> None:
    """One sends reports, one nothing, one declines: `owners` lets the round end, `minimum_owners` waits for more reports."""
    server, tokens = place.serve(), [place.enrol(f"owner {i}") for i in range(3)]
    declined = wire.Answer(version=1, code=wire.Code.METHOD_NOT_ALLOWED).SerializeToString()

    def answered(**settings: Any) -> tuple[str, Wire, bytes]:
        """A campaign that the three have answered; the one that declined, and what it could have sent."""
        plan = plan_now(campaign=str(settings), variant="published", minimum_reports=0)
        campaign = place.campaign(plan, **settings)
        message = wire.Answer.FromString(packed(bit_batch(6), plan=digest(plan.to_bytes())))
        message.batch.parts = bytes(12)
        report, hands = message.SerializeToString(), [Wire(server, campaign, token) for token in tokens]
        eventually(lambda: hands[0].announced(report) == "OK")
        assert hands[1].stream(iter([]), (MESSAGES, "0")) == "OK"
        assert hands[2].announced(declined) == "METHOD_NOT_ALLOWED"
        assert place.store.turnout(campaign, 0) == (3, 1, 6)
        return campaign, hands[2], report

    evidence, hand, report = answered(round_seconds=0.1, minimum_owners=2)
    everybody, _, _ = answered(owners=3)
    eventually(lambda: place.store.rounds(everybody)[0].because == "enough")
    assert place.store.rounds(evidence)[0].closed is None
    assert hand.announced(report) == "OK"
    eventually(lambda: place.store.rounds(evidence)[0].because == "deadline")


@pytest.mark.parametrize("kind", DATABASES)
def test_no_batch_enters_a_closed_round(kind: str, database: Callable[[str], str], tmp_path: Path) -> None:
    """Four writers race with the close: when it has returned, what is stored is what was acknowledged, and stays that."""
    place = Place(tmp_path / "aggregator", database(kind))
    try:
        plan = plan_now()
        campaign = place.campaign(plan)
        place.enrol("owner")
        place.store.ask(campaign, 0, b"query", now=0.0, seconds=1.0)
        writers, stop = [Writer(place.store.engine, Vitals()) for _ in range(2)], threading.Event()
        acknowledged, refused = Counter[int](), Counter[int]()

        def send(i: int) -> None:
            while not stop.is_set():
                batch = Packed(os.urandom(32), 1, b"x" * 100)
                code = writers[i % 2].put(Parcel(campaign, 0, 1, [batch])).result()
                (acknowledged if code == wire.Code.OK else refused)[i] += 1

        threads = [threading.Thread(target=send, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: sum(acknowledged.values()) > 50)
        place.store.close_round(campaign, 0, "deadline", now=1.0)
        stored = views.stored_batches(place.store.engine, campaign)
        eventually(lambda: sum(refused.values()) > 20)
        stop.set()
        for thread in threads:
            thread.join()
        for writer in writers:
            writer.close()
        assert views.stored_batches(place.store.engine, campaign) == stored == sum(acknowledged.values())
        assert sum(part.reports for part in views.progress(place.store.engine, campaign)) == stored
    finally:
        place.close()


def test_a_token_counts_as_one_owner(tmp_path: Path) -> None:
    """Two answers under made-up ids from one token, and one from another: asked as a whole, two owners are counted."""
    place = Place(tmp_path / "aggregator", f"sqlite:///{tmp_path / 'one.sqlite'}")
    try:
        campaign = place.campaign(plan_now())
        tokens = [place.enrol(name) for name in ("north", "south")]
        assert len(set(tokens)) == 2
        place.store.ask(campaign, 0, b"query", now=0.0, seconds=1.0)
        writer = Writer(place.store.engine, Vitals())
        for owner, digest in ((1, b"b"), (1, b"a"), (2, b"c")):
            assert writer.put(Parcel(campaign, 0, owner, [Packed(digest * 32, 1, digest)])).result() == wire.Code.OK
        writer.close()
        assert list(place.store.answers(campaign, 0)) == [b"a", b"b", b"c"]
        assert list(place.store.answers(campaign, 0, one_each=True)) == [b"a", b"c"]
    finally:
        place.close()


def test_an_owner_that_goes_away_stops_nobody(place: Place) -> None:
    """A call that is cancelled while its batch is on its way to disk: the batch is written, and so are those of others."""
    campaign = place.campaign(plan_now())
    place.enrol("owner")
    place.store.ask(campaign, 0, b"query", now=0.0, seconds=1.0)
    writer = Writer(place.store.engine, Vitals())
    for i in range(20):
        writer.put(Parcel(campaign, 0, 1, [Packed(bytes([i]) * 32, 1, b"batch")])).cancel()
    assert writer.put(Parcel(campaign, 0, 1, [Packed(b"x" * 32, 1, b"batch")])).result(timeout=30) == wire.Code.OK
    writer.close()
    assert views.stored_batches(place.store.engine, campaign) == 21


@pytest.mark.parametrize("kind", DATABASES)
def test_migrations_make_the_tables_that_the_code_describes(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:  # fmt: skip
    """No difference between the versions run in order and the schema, in either database."""
    place = Place(tmp_path / "aggregator", database(kind))
    with place.store.engine.connect() as db:
        assert compare_metadata(MigrationContext.configure(db), metadata) == []
    place.close()


def test_a_stopped_server_finishes_what_has_begun(place: Place, tmp_path: Path) -> None:
    """SIGTERM in the middle of a stream: it says so to health checks, the stream gets its receipt, and the exit is clean."""
    plan = plan_now()
    campaign, token = place.campaign(plan), place.enrol("owner")
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    hand, mark = Wire(server, campaign, token), digest(plan.to_bytes())
    checks = health_pb2_grpc.HealthStub(hand.channel)

    def health() -> Any:
        return checks.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=5).status

    eventually(lambda: health() == health_pb2.HealthCheckResponse.SERVING)

    def slowly() -> Iterator[bytes]:
        yield packed(bit_batch(3), plan=mark)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        yield packed(bit_batch(3, first=3), plan=mark)

    assert hand.stream(slowly()) == "OK"
    assert server.process.wait(timeout=30) == 0
    assert place.store.turnout(campaign, 0)[2] == 6


def aggregator(*arguments: Any) -> tuple[int, str]:
    """The aggregator's command line, in this process: starting one takes seconds."""
    result = CliRunner().invoke(aggregator_app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout


def client(*arguments: Any) -> tuple[int, str]:
    """The owner's command line, likewise."""
    result = CliRunner().invoke(client_app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout


def owner_counts(plan: Plan, count: int) -> bytes:
    """An owner's exact histogram with all its records in one bin."""
    counts = np.zeros(plan.bins, dtype=np.int64)
    counts[plan.bins // 2] = count
    batch = write_owner_answer(OwnerAnswer(os.urandom(16), counts), plan=digest(plan.to_bytes()), round_=0)
    return wire.Answer(version=VERSION, code=wire.Code.OK, batch=batch).SerializeToString()


def test_a_campaign_that_cannot_go_on_holds_up_no_other(place: Place) -> None:
    """More records than any procedure takes, of one owner or of all together, and a plan or settings of another version: each
    stops its own campaign, later ones run, and no count of anybody is in the log."""
    poisoned, later = plan_now(TRUSTED), plan_now(variant="one-shot", campaign="later")
    campaign, tokens = place.campaign(poisoned, owners=2), [place.enrol(name) for name in ("one", "other")]
    foreign = [place.campaign(plan_now(campaign=f"of another version {number}")) for number in range(3)]
    other_version = wire.SignedPlan(plan=wire.Plan(version=99).SerializeToString()).SerializeToString()
    with place.store.engine.begin() as db:
        db.exec_driver_sql("UPDATE campaigns SET signed_plan = ? WHERE id = ?", (other_version, foreign[0]))
        for name, settings in zip(foreign[1:], ('{"round_seconds": 0}', '{"unheard": 1}'), strict=True):
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
    # It is not this version's to end.
    assert {place.store.campaign(name).state for name in foreign} == {"open"}
    after = place.campaign(later)
    eventually(lambda: place.store.rounds(after))
    assert [event["event"] for event in server.events()].count("a campaign stands still") == 3
    assert not [number for number in (each, 2 * each, 2**33) if str(number) in server.log.read_text()]
    code, text = aggregator("campaign", "status", "--db", place.url)
    assert (code, [name for name in foreign if f"{name}  of another version" not in text]) == (0, [])
    for name in foreign:
        assert aggregator("campaign", "export", name, place.folder / "out", "--db", place.url)[0] == 2
    port = next(event["address"] for event in server.events() if event["event"] == "page")
    pages = {path: urllib.request.urlopen(f"{port}{path}", timeout=30).read().decode() for path in ("", "metrics")}
    assert all(name in pages[""] for name in foreign)
    assert "confide_campaigns_stuck 3.0" in pages["metrics"]


def test_a_plan_that_its_procedure_does_not_accept_is_not_made(place: Place, tmp_path: Path) -> None:
    """What would stop the campaign at its first step is said at once, with exit code 2, and nothing is stored."""
    text = f'campaign = "central:trusted"\nlabels = 5\nmodel = "{"00" * 32}"\nrecords = 2000\nepsilon = 1e-5\n'
    (tmp_path / "campaign.toml").write_text(text)
    key, db = ("--key", place.keys / SIGNING_KEY), ("--db", place.url)
    assert aggregator("campaign", "create", *key, *db, "--file", tmp_path / "campaign.toml") == (2, "")
    assert place.store.campaigns() == []
