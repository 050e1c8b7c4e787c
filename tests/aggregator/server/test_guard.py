import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from confide.aggregator.server.authentication import OwnerDirectory
from confide.aggregator.server.health import HEALTH
from confide.aggregator.storage.enrolment import Enrolment
from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.service import CALLS, SERVICE
from tests.support.servers.guarded import BOUNDS, Caller, Guarded, outcome
from tests.support.servers.servers import Place, eventually

PATHS = [call.path for call in CALLS.values()] + [
    f"/{HEALTH}/{name}" for name in ("Check", "Watch")
]


@contextmanager
def silence() -> Iterator[Iterator[bytes]]:
    """A stream that stays open and sends nothing until the end."""
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        over.wait()
        yield from ()

    try:
        yield nothing()
    finally:
        over.set()


def test_those_who_watch_take_no_place_of_those_who_send(guarded: Guarded) -> None:
    """As many watch as may, more than may send: one more is refused, and everybody can still ask
    and send."""
    owners = [guarded.owner(f"owner {i}") for i in range(4)]
    watching = [owner.watch() for owner in owners[:3]]
    assert [next(one).taking for one in watching] == [True] * 3
    assert outcome(lambda: next(owners[3].watch())) == grpc.StatusCode.RESOURCE_EXHAUSTED
    for i, owner in enumerate(owners):
        assert owner.ask() == wire.Code.OK
        assert owner.submit(iter([guarded.answer(3 * i)])).result().accepted == 3
    watching[0].cancel()
    eventually(lambda: outcome(lambda: next(owners[3].watch()).taking) is True)


def test_open_calls_of_owners_are_bounded(guarded: Guarded) -> None:
    """With every place taken by streams the next call is refused, to be made again later; a place
    that is left is free."""
    owners = [guarded.owner(f"owner {i}") for i in range(3)]
    with ExitStack() as open_streams:
        taken = [owner.submit(open_streams.enter_context(silence())) for owner in owners[:2]]
        eventually(lambda: owners[2].ask() == grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert not any(stream.done() for stream in taken)
    eventually(lambda: owners[2].ask() == wire.Code.OK)


def test_strangers_shut_nobody_out(guarded: Guarded) -> None:
    """Calls of every kind without a token, with made-up ones, without a message or without an end,
    on connections of their own: health checks find few places, and an owner every one."""
    owner, strangers = guarded.owner("owner"), [Caller(guarded, f"made up {i}") for i in range(20)]
    with ExitStack() as calls:
        held = []
        for stranger in strangers:
            for path in [call.path for call in CALLS.values()] + [
                f"/grpc.health.v1.Health/{name}" for name in ("Check", "Watch")
            ]:
                quiet = calls.enter_context(silence())
                held.append(
                    stranger.channel.stream_stream(path)(
                        quiet, metadata=stranger.metadata, timeout=120
                    )
                )
            held.append(stranger.health.Watch(health_pb2.HealthCheckRequest(service=SERVICE)))
        for first in range(0, 30, 3):
            assert owner.ask() == wire.Code.OK
            assert owner.submit(iter([guarded.answer(first)])).result().accepted == 3
        # Those that were refused have ended, and those that asked nothing have too.
        eventually(lambda: sum(not one.done() for one in held) <= BOUNDS.health_watches, seconds=30)
        check = health_pb2.HealthCheckRequest(service=SERVICE)
        assert owner.health.Check(check).status == health_pb2.HealthCheckResponse.SERVING
        statuses = {one.code() for one in held if one.done()}
    assert statuses <= {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }


def test_health_is_watched_by_few_and_asked_by_all(guarded: Guarded) -> None:
    """Those who watch hear of changes, also when another has left; one too many is told that it
    cannot, and asks instead."""
    callers, status = [Caller(guarded, "") for _ in range(3)], health_pb2.HealthCheckResponse
    watching = [
        caller.health.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=60)
        for caller in callers[:2]
    ]
    assert [next(one).status for one in watching] == [status.SERVING] * 2
    asked = health_pb2.HealthCheckRequest()
    assert (
        outcome(lambda: next(callers[2].health.Watch(asked, timeout=10)))
        == grpc.StatusCode.UNIMPLEMENTED
    )
    assert callers[2].health.Check(asked).status == status.SERVING
    unknown = health_pb2.HealthCheckRequest(service="another")
    assert outcome(lambda: callers[2].health.Check(unknown)) == grpc.StatusCode.NOT_FOUND
    watching[0].cancel()
    guarded.loop.call_soon_threadsafe(lambda: guarded.server.set_health(healthy=False))
    assert next(watching[1]).status == status.NOT_SERVING
    eventually(
        lambda: (
            outcome(lambda: next(callers[2].health.Watch(unknown, timeout=10)).status)
            == status.SERVICE_UNKNOWN
        )
    )


def test_a_removed_owner_is_out_within_five_seconds(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a stream and a watch that were open when it was removed; what it had sent before
    stays."""
    monkeypatch.setattr("confide.aggregator.server.service.HEARTBEAT_SECONDS", 1.0)
    owner = guarded.owner("owner")

    def slowly() -> Iterator[bytes]:
        for number in range(60):
            yield guarded.answer(3 * number)
            time.sleep(0.2)

    watching, sending = owner.watch(), owner.submit(slowly())
    assert next(watching).taking
    time.sleep(0.5)
    Enrolment(guarded.place.store.engine).remove("owner")
    removed = time.monotonic()
    assert outcome(sending.result) == grpc.StatusCode.UNAUTHENTICATED
    assert outcome(lambda: list(watching)) == grpc.StatusCode.UNAUTHENTICATED
    assert time.monotonic() - removed < 6
    assert owner.ask() == grpc.StatusCode.UNAUTHENTICATED


def test_the_directory_holds_the_enrolled_and_nobody_else(tmp_path: Path) -> None:
    """A new owner is known at once, one that was removed soon not; strangers leave nothing behind
    and wait together."""
    place = Place(tmp_path / "aggregator")
    looks = []

    class Counted(Enrolment):
        def everybody(self) -> Any:
            looks.append(time.monotonic())
            return super().everybody()

    async def refused(directory: OwnerDirectory, token: str) -> int:
        with pytest.raises(Refused) as found:
            await directory.owner_of(token)
        return found.value.code

    async def run() -> None:
        directory = OwnerDirectory(Counted(place.store.engine), strangers=50)
        tokens = [place.enrol(f"owner {i}") for i in range(60)]
        await directory.refresh()
        assert {owner.name for owner in await asyncio.gather(*map(directory.owner_of, tokens))} == {
            f"owner {i}" for i in range(60)
        }
        assert len(looks) == 1
        codes = await asyncio.gather(*(refused(directory, f"made up {i}") for i in range(80)))
        assert sorted(codes) == [wire.Code.UNAUTHENTICATED] * 50 + [wire.Code.RATE_LIMITED] * 30
        assert len(looks) <= 3
        assert len(directory._owners) == 60
        assert (await directory.owner_of(place.enrol("another"))).name == "another"
        again = place.enrol("owner 0")
        assert (await directory.owner_of(again)).name == "owner 0"
        assert await refused(directory, tokens[0]) == wire.Code.UNAUTHENTICATED

    asyncio.run(run())
    place.close()
