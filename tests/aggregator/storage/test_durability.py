"""Killed servers and clients, a second leader, full disks: acknowledged reports count once."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from confide.aggregator.storage import views
from confide.aggregator.storage.reports.writer import IDLE_SECONDS
from confide.client.ledger.ledger import Ledger
from confide.client.transport.retry import Unreachable
from confide.protocol.plan import digest
from confide.protocol.wire.service import SERVICE
from tests.support.owners.answers import answer as packed
from tests.support.owners.answers import bit_batch
from tests.support.owners.hostile import Wire
from tests.support.servers.chaos import Came, came, chaos, in_peace, leader, under_way
from tests.support.servers.databases import DATABASES, needs_postgres
from tests.support.servers.disks import Disk, PostgresDisk, SqliteDisk, obeying_modes
from tests.support.servers.servers import Place, contribution, eventually, plan_now, together


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Came:
    """The campaign that others disturb, of 20 owners and 10,000 reports, without a failure."""
    return in_peace(
        plan_now(expected_records=10_000), tmp_path_factory.mktemp("quiet"), owners=20, n=500
    )


@pytest.mark.parametrize("kind", DATABASES)
def test_killed_at_random_every_acknowledged_report_counts_once(
    kind: str, database: Callable[[str], str], quiet: Came, tmp_path: Path
) -> None:
    """kill -9 of server and clients during a campaign of 20 owners and 10,000 reports: all comes
    out as if nothing had been."""
    place = Place(tmp_path / "aggregator", database(kind))
    try:
        plan = plan_now(expected_records=10_000)
        found = chaos(
            place,
            plan,
            tmp_path / "owners",
            owners=20,
            processes=1,
            n=500,
            kills=2,
            client_kills=1,
            seed=len(kind),
        )
        assert (found.servers_killed, found.clients_killed) == (2, 1)
        assert found.came == quiet
        assert quiet.stored == quiet.acknowledged
        assert len(set(quiet.stored)) == quiet.formal["certificate"]["n"] == 10_000
    finally:
        place.close()


@needs_postgres
def test_another_server_takes_over_from_a_killed_leader(
    database: Callable[[str], str], tmp_path: Path
) -> None:
    """Two servers on one PostgreSQL, half of the owners at each; the leader dies while a round's
    reports come in, and the other leads before it is back. All comes out as with one server in
    peace, every report stored once."""
    place, owners, n = Place(tmp_path / "aggregator", database("postgres")), 8, 750
    try:
        plan = plan_now()
        campaign = place.campaign(plan, owners=owners)
        servers = [place.serve(), place.serve()]
        access = [servers[i % 2].access(place.enrol(f"owner {i}")) for i in range(owners)]

        def take_part(i: int) -> int:
            if i == owners:
                first = leader(place, campaign, servers)
                eventually(
                    lambda: (
                        len(place.store.rounds(campaign)) > 1 and under_way(place, campaign, owners)
                    )
                )
                first.kill()
                eventually(lambda: leader(place, campaign, servers) is not first)
                # Owners of the dead server find it again under its address.
                place.serve(port=first.port)
                return 0
            return int(
                contribution(access[i], plan, tmp_path / "owners" / f"{i}", seed=i, n=n)
                .watch()
                .reports
            )

        (tmp_path / "owners").mkdir()
        assert together(owners + 1, take_part) == [n] * owners + [0]
        found = came(place, campaign, tmp_path / "owners")
        assert found == in_peace(plan, tmp_path / "in peace", owners=owners, n=n)
        assert found.stored == found.acknowledged
        assert (
            len(set(found.stored))
            == len(found.stored)
            == found.formal["certificate"]["n"]
            == owners * n
        )
    finally:
        place.close()


@pytest.mark.parametrize("kind", DATABASES)
def test_a_disk_that_is_full_or_read_only_acknowledges_nothing(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:
    """First the disk is full, then it may only be read: no receipt, not healthy, and the log says
    why. Once it is well the same server is healthy again before anybody comes, and the same client
    gets through, once."""
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
            health.extend(
                reply.status
                for reply in checks.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
            )

    def failures() -> list[str]:
        return [
            str(event.get("reason", "")) for event in server.events() if event["level"] == "error"
        ]

    def refused(reason: str) -> None:
        before = len(health)
        with pytest.raises(Unreachable, match="UNAVAILABLE"):
            contribution(
                server.access(token), plan, tmp_path / "o", seed=1, n=20_000, patience=1
            ).once()
        eventually(lambda: down in health[before - 1 :])
        assert any(reason in failure for failure in failures()), failures()
        assert (
            len(Ledger(tmp_path / "o/ledger.sqlite").unacknowledged(digest(plan.to_bytes()))) == 1
        )
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


def test_a_stopped_server_finishes_what_has_begun(place: Place, tmp_path: Path) -> None:
    """SIGTERM in the middle of a stream: it says so to health checks, the stream gets its receipt,
    and the exit is clean."""
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
