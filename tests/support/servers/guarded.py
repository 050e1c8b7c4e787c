"""A server in the process of the tests, with few places and an open round."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2_grpc

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.bounds import Bounds
from confide.aggregator.server.grpc_server import Endpoint, GrpcServer
from confide.aggregator.server.limits import ServerLimits
from confide.aggregator.server.rounds.round_cache import RoundCache
from confide.aggregator.server.service import Service
from confide.aggregator.storage.reports.writer import Writer
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitQuery
from confide.protocol.plan import Plan, digest, write_query
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.service import AUTHORIZATION, CALLS, CAMPAIGN
from tests.support.owners.answers import answer, bit_batch
from tests.support.servers.servers import Place, plan_now

CHANNEL = Bit(epsilon=4.0)
BOUNDS = Bounds(calls=2, watches=3, strangers=2, checks=4, health_watches=2)


class Guarded:
    """A server in this process, with few places, and an open round."""

    def __init__(self, place: Place) -> None:
        self.place, plan, self.looks = place, plan_now(), 0
        self.campaign, self.plan = self.opened(plan), digest(plan.to_bytes())
        self.writer = Writer(place.store.engine, ProcessStatus())
        self._ready, self._thread = (
            threading.Event(),
            threading.Thread(target=lambda: asyncio.run(self._serve())),
        )
        self._thread.start()
        assert self._ready.wait(30)

    def opened(self, plan: Plan) -> str:
        """Create a campaign and open its first round, as a command or another server does."""
        name, store = digest(plan.to_bytes()), self.place.store
        query = write_query(BitQuery(CHANNEL, 0.0, 1.0, (0.25, 0.75)), plan=name, round_=0)
        campaign = self.place.campaign(plan)
        store.ask(campaign, 0, query, now=0.0, seconds=1.0)
        return campaign

    async def _serve(self) -> None:
        guarded = self

        class Counted(RoundCache):
            def refresh(self) -> bool:
                guarded.looks += 1
                return super().refresh()

        cache = Counted(self.place.store)
        cache.refresh()
        service = Service(
            store=self.place.store,
            writer=self.writer,
            cache=cache,
            limits=ServerLimits(),
            status=ProcessStatus(),
            bounds=BOUNDS,
            certified=False,
        )
        endpoint = Endpoint("127.0.0.1:0")
        self.server = GrpcServer(service, endpoint, limits=ServerLimits(), bounds=BOUNDS)
        self.loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self.server.set_health(healthy=True)
        await service.prepare()
        await self.server.start()
        self._ready.set()
        await self._over.wait()
        service.wake(stopping=True)
        self.server.announce_stop()
        await self.server.stop()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self.writer.close()

    def owner(self, name: str) -> "Caller":
        """Enrolled, and known to the server."""
        made = Caller(self, self.place.enrol(name))
        assert made.ask() == wire.Code.OK
        return made

    def answer(self, first: int = 0) -> bytes:
        return answer(bit_batch(3, first=first), plan=self.plan)


class Caller:
    """A connection of its own with any token."""

    def __init__(self, guarded: Guarded, token: str, *, campaign: str = "") -> None:
        # Channels of one process share their connections unless told not to.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{guarded.server.port}", options=options)
        asked = campaign or guarded.campaign
        self.metadata = ((CAMPAIGN, asked), (AUTHORIZATION, f"Bearer {token}"))
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def ask(self, name: str = "PollQuery") -> Any:
        call = self.channel.unary_unary(
            CALLS[name].path, response_deserializer=CALLS[name].reply.FromString
        )
        return outcome(lambda: call(b"", metadata=self.metadata, timeout=10).code)

    def plan(self) -> bytes:
        call = self.channel.unary_unary(
            CALLS["FetchPlan"].path, response_deserializer=wire.SignedPlan.FromString
        )
        return bytes(call(b"", metadata=self.metadata, timeout=10).plan)

    def submit(self, messages: Iterator[bytes]) -> Any:
        call = self.channel.stream_unary(
            CALLS["Submit"].path, response_deserializer=wire.Receipt.FromString
        )
        return call.future(messages, metadata=self.metadata, timeout=30)

    def watch(self) -> Any:
        call = self.channel.unary_stream(
            CALLS["Watch"].path, response_deserializer=CALLS["Watch"].reply.FromString
        )
        return call(b"", metadata=self.metadata, timeout=60)


def outcome(work: Callable[[], Any]) -> Any:
    """What comes back, or the status."""
    try:
        return work()
    except grpc.RpcError as error:
        return error.code()
