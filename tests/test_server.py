import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from aggregator import views
from aggregator.campaigns import run_campaign
from aggregator.releases import read_release
from client.grpc_client import Unreachable
from client.ledger import Ledger
from protocol import wire_pb2 as wire
from protocol.campaign import Plan, digest
from protocol.card import AUDITOR, PUBLIC, parse_card
from protocol.channels import Bit
from protocol.service import AUTHORIZATION, CALLS, CAMPAIGN
from protocol.verify import verify
from tests.chaos import chaos, leader
from tests.owners import LABEL_PLAN, PLAN, POLICY, asking, owner, signed
from tests.postgres import binaries, postgres
from tests.servers import Place, Running, contribution, eventually, plan_now, together
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
            import psycopg

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
    for name, plan in plans.items():
        eventually(lambda name=name: place.store.campaign(ids[name]).state == "calibrated")
        kept = place.store.release(ids[name])
        draw = {} if kept is None else {"draw": lambda mechanism, *_, kept=kept: read_release(kept, mechanism, where="")}
        outcome = undisturbed(plan, tmp_path / f"in-process {name}", owners=3, n=2_000, **draw)
        card = parse_card(place.store.card(ids[name], PUBLIC) or "")
        assert all(finding.holds for finding in verify(card)), name
        assert card.provenance["received"] == outcome.received, name
        shown = card.formal["released"] if plan.central else card.formal["certificate"]
        assert shown["threshold"] == outcome.certificate.threshold, name
        assert outcome.certificate.n == 6_000
    assert place.store.card(ids["trusted"], AUDITOR) is not None
    assert [point.round for point in views.points(place.store.engine, ids["noised"])] == list(range(8))
    assert server.stop() == 0
    assert not [event for event in server.events() if event["level"] != "info"]


@pytest.mark.parametrize("kind", DATABASES)
def test_killed_at_random_every_acknowledged_report_counts_once(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:  # fmt: skip
    """kill -9 of server and clients during a campaign of 20 owners and 20,000 reports: the threshold is that of the ledgers."""
    place = Place(tmp_path / "aggregator", database(kind))
    try:
        plan = plan_now(expected_records=20_000)
        found = chaos(
            place, plan, tmp_path / "owners", owners=20, processes=2, n=1_000, kills=3, client_kills=2, seed=len(kind)
        )
        assert (found.servers_killed, found.clients_killed) == (3, 2)
        assert found.card["threshold"] == found.expected.threshold
        assert found.card["n"] == found.expected.n
        assert found.acknowledged == 18_000
        assert 18_000 <= found.card["n"] <= 20_000
    finally:
        place.close()


@needs_postgres
def test_another_server_takes_over_from_a_killed_leader(database: Callable[[str], str], tmp_path: Path) -> None:
    """Two servers on one PostgreSQL, half of the owners at each; the leader dies in the middle of a round."""
    place = Place(tmp_path / "aggregator", database("postgres"))
    try:
        plan = plan_now()
        campaign = place.campaign(plan, owners=4)
        servers = [place.serve(), place.serve()]
        tokens = [place.enrol(f"owner {i}") for i in range(4)]

        def take_part(i: int) -> int:
            if i == 4:
                first = leader(place, campaign, servers)
                eventually(lambda: len(place.store.rounds(campaign)) == 2)
                first.kill()
                # Owners of the dead server find it again under its address.
                place.serve(port=first.port)
                return 0
            access = servers[i % 2].access(tokens[i])
            return int(contribution(access, plan, tmp_path / f"{i}", seed=i, n=1_500).watch().reports)

        assert together(5, take_part) == [1_500] * 4 + [0]
        eventually(lambda: place.store.campaign(campaign).state == "calibrated")
        outcome = undisturbed(plan, tmp_path / "in-process", owners=4, n=1_500)
        card = parse_card(place.store.card(campaign, PUBLIC) or "")
        assert card.formal["certificate"]["threshold"] == outcome.certificate.threshold
    finally:
        place.close()


def test_a_full_disk_acknowledges_nothing(place: Place, tmp_path: Path) -> None:
    """The server may not write beyond a file size: no receipt, not healthy; once it may, the same client gets through."""
    plan = plan_now(variant="one-shot", expected_records=60_000)
    campaign, token = place.campaign(plan, owners=1), place.enrol("owner")
    place.store.engine.dispose()
    limit = sum(file.stat().st_size for file in place.folder.glob("confide.sqlite*")) + 200_000
    server = place.serve(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)))
    eventually(lambda: place.store.rounds(campaign))
    with pytest.raises(Unreachable, match="UNAVAILABLE"):
        contribution(server.access(token), plan, tmp_path / "o", seed=1, n=60_000, patience=2).watch()
    assert not Ledger(tmp_path / "o/ledger.sqlite").campaigns()[0].unanswered
    assert len(Ledger(tmp_path / "o/ledger.sqlite").unacknowledged(digest(plan.to_bytes()))) == 1
    assert "not stored" in [event["event"] for event in server.events()]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    left = contribution(server.access(token), plan, tmp_path / "o", seed=1, n=60_000).watch()
    assert (left.reports, dict(left.rounds)) == (60_000, {"OK": 1})
    eventually(lambda: place.store.campaign(campaign).state == "calibrated")
    card = parse_card(place.store.card(campaign, PUBLIC) or "")
    assert card.formal["certificate"]["n"] == 60_000


class Wire:
    """A hand on the wire of one server: any bytes, any metadata."""

    def __init__(self, server: Running, campaign: str, token: str, certificates: tuple[bytes, ...] = ()) -> None:
        authority = (server.place.keys / "ca.pem").read_bytes()
        credentials = grpc.ssl_channel_credentials(authority, *certificates)
        options = [("grpc.max_send_message_length", -1)]
        self.channel = grpc.secure_channel(f"127.0.0.1:{server.port}", credentials, options=options)
        self.metadata = ((CAMPAIGN, campaign), (AUTHORIZATION, f"Bearer {token}"))

    def submit(self, *messages: bytes) -> str:
        """The code that comes back, in a receipt or as a status."""
        return self.stream(iter(messages))

    def stream(self, messages: Iterator[bytes]) -> str:
        call = self.channel.stream_unary(
            CALLS["Submit"].path, request_serializer=None, response_deserializer=wire.Receipt.FromString
        )
        try:
            receipt = call(messages, metadata=self.metadata, timeout=20)
        except grpc.RpcError as error:
            return str(error.details())
        return str(wire.Code.Name(receipt.code))


def test_hostile_input_is_refused_by_name_and_changes_nothing(place: Place, tmp_path: Path) -> None:
    """Every attack gets its code and is counted; the honest owner's reports, and only they, make the campaign."""
    plan = plan_now(variant="one-shot", expected_records=2_000)
    campaign = place.campaign(plan)
    good, bad = place.enrol("good"), place.enrol("bad")
    options = ("--message-bytes", "100000", "--idle-seconds", "1", "--rate", "400", "--open-calls", "3")
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
        answer(6_000): "TOO_LARGE",
    }
    for attack, code in attacks.items():
        assert hand.submit(attack) == code
    assert "larger than max" in hand.submit(bytes(300_000))
    assert Wire(server, "f" * 16, bad).submit(answer()) == "UNKNOWN_CAMPAIGN"
    assert Wire(server, campaign, "made up").submit(answer()) == "UNAUTHENTICATED"

    def slowly() -> Iterator[bytes]:
        time.sleep(3)
        yield answer()

    started = time.monotonic()
    assert set(together(4, lambda i: hand.stream(slowly()))) == {"TIMED_OUT", "RATE_LIMITED"}
    assert time.monotonic() - started < 15
    rng, codes = np.random.default_rng(1), set()
    valid = answer(20)
    for _ in range(150):
        damaged = bytearray(valid)
        damaged[int(rng.integers(len(damaged)))] ^= int(rng.integers(1, 256))
        codes.add(hand.submit(rng.bytes(int(rng.integers(200))), bytes(damaged[: int(rng.integers(len(damaged)))])))
    assert codes <= {"MALFORMED", "WRONG_VERSION", "RATE_LIMITED", "WRONG_PLAN", "WRONG_ROUND"}, codes
    assert hand.submit(*[rng.bytes(9) for _ in range(3)]) in codes
    time.sleep(1)
    # A flood of valid messages: what was taken before the limit is counted as what it is.
    flood = Wire(server, campaign, place.enrol("flood"))
    assert flood.submit(*[answer(1) for _ in range(1_000)]) == "RATE_LIMITED"
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
    assert server.process.poll() is None
    assert not [event for event in server.events() if event["level"] == "error"]
