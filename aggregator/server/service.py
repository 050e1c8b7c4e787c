"""The gRPC service: thin calls over desk, writer and store. A receipt leaves only after what it
speaks of is durable."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.authentication import OwnerDirectory
from confide.aggregator.server.health import HealthChecks
from confide.aggregator.server.limits import Limits, Places, Reading, Room, Turnstile
from confide.aggregator.server.round_cache import CachedCampaign, RoundCache
from confide.aggregator.server.upload import Stream
from confide.aggregator.storage.deposit import Rejection
from confide.aggregator.storage.enrolment import Enrolment, Owner
from confide.aggregator.storage.report_writer import Writer
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import CALIBRATED, CLOSED, PUBLISHED
from confide.protocol.cards.card import PUBLIC
from confide.protocol.errors import BadInput, Refused
from confide.protocol.wire import service_pb2
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.service import AUTHORIZATION, CALLS, CAMPAIGN, MESSAGES, SERVICE

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
# A watcher hears from the server at least this often.
HEARTBEAT_SECONDS = 10.0
# The bytes of all answers that are not yet durable.
MOST_HELD = 64 << 20
# How much larger than the limit a message may be to be refused by its code and counted, and not by
# gRPC.
SOMEWHAT_BYTES = 1 << 16
# How long a connection may be without a call, or without being one; and the calls on one
# connection.
IDLE_SECONDS, HANDSHAKE_SECONDS, STREAMS = 15.0, 5.0, 64

STATUS: dict[int, Any] = {
    wire.Code.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    wire.Code.UNKNOWN_CAMPAIGN: grpc.StatusCode.NOT_FOUND,
    wire.Code.RATE_LIMITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    wire.Code.TIMED_OUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    wire.Code.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


@dataclass(frozen=True)
class Bounds:
    """How many calls may be open at a time: of owners that ask or send, and of those that watch; of
    strangers until they are known or refused; and health checks, that are asked and that watch."""

    calls: int = 1_000
    watches: int = 10_000
    strangers: int = 100
    # Each may read a message, of the largest size, of somebody without a token.
    checks: int = 32
    health_watches: int = 16


class Service:
    """The calls of protocol/wire/service.proto. They run in one event loop; whatever waits for the
    disk runs in threads."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        desk: RoundCache,
        limits: Limits,
        vitals: ProcessStatus,
        bounds: Bounds,
        *,
        certified: bool,
    ) -> None:
        self._store, self._writer, self._desk, self._limits = store, writer, desk, limits
        self._certified = certified
        self._roll = OwnerDirectory(Enrolment(store.engine), strangers=bounds.strangers)
        self._calls, self._watches = Places(bounds.calls), Places(bounds.watches)
        self._turnstile = Turnstile(limits, vitals, now=time.monotonic)
        self._reading, self._room = Reading(limits.message_bytes), Room(MOST_HELD)
        self._changed, self._stopping = asyncio.Event(), False

    async def prepare(self) -> None:
        """Know the owners before the first of them calls."""
        await self._roll.look()

    def wake(self, *, stopping: bool = False) -> None:
        """Tell everybody who watches that something has changed, or that there is no more to see
        here."""
        self._stopping = stopping
        self._changed.set()
        self._changed = asyncio.Event()

    def handlers(self) -> Any:
        """A handler for every call in the description of the service.

        All take a stream, as which one message looks the same: a call is then handled from its
        start, not from its first message, and none is open that was not counted.
        """
        asked = grpc.stream_unary_rpc_method_handler
        made = {
            "FetchPlan": asked(self._guarded(self._plan), **_codecs("FetchPlan")),
            "PollQuery": asked(self._guarded(self._query), **_codecs("PollQuery")),
            "FetchCard": asked(self._guarded(self._card), **_codecs("FetchCard")),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch, **_codecs("Watch")),
            # Answers stay bytes: they are stored as they came, and checked in one place.
            "Submit": asked(
                self._guarded(self._submit), **_codecs("Submit") | {"request_deserializer": None}
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, made)

    async def _plan(
        self, _: Any, context: Any, owner: Owner, standing: CachedCampaign
    ) -> wire.SignedPlan:
        return wire.SignedPlan.FromString(standing.campaign.signed_plan)

    async def _query(
        self, _: Any, context: Any, owner: Owner, standing: CachedCampaign
    ) -> service_pb2.Asked:
        if standing.last is None or not standing.taking:
            return service_pb2.Asked(code=wire.Code.CLOSED)
        return service_pb2.Asked(code=wire.Code.OK, query=standing.last.query)

    async def _card(
        self, _: Any, context: Any, owner: Owner, standing: CachedCampaign
    ) -> service_pb2.CardJson:
        if standing.campaign.state != PUBLISHED:
            return service_pb2.CardJson(code=wire.Code.CLOSED)
        card = await asyncio.to_thread(self._store.card, standing.campaign.id, PUBLIC)
        return service_pb2.CardJson(code=wire.Code.OK, card=card)

    async def _submit(
        self, messages: AsyncIterator[bytes], context: Any, owner: Owner, standing: CachedCampaign
    ) -> wire.Receipt:
        name = standing.campaign.id

        async def look_again() -> CachedCampaign:
            await asyncio.to_thread(self._desk.refresh)
            return self._desk.standing(name)

        said = _metadata(context).get(MESSAGES, "")
        announced = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else None
        stream = Stream(
            owner,
            standing,
            self._writer,
            self._turnstile,
            self._limits,
            self._reading,
            self._room,
            look_again,
            lambda: self._who(context),
            announced,
        )
        receipt = await stream.take(messages)
        if receipt.code != wire.Code.OK and not stream.declined:
            self._reject(name, owner, receipt.code)
        return receipt

    async def _watch(self, _: Any, context: Any) -> AsyncIterator[service_pb2.Progress]:
        owner = None
        try:
            owner = await self._who(context)
            with self._watches.one(), self._turnstile.call(owner.id):
                async for progress in self._changes(_metadata(context).get(CAMPAIGN, "")):
                    yield progress
                    await self._who(context)
        except Refused as refused:
            await self._refuse(context, owner, refused.code)

    async def _changes(self, campaign: str) -> AsyncIterator[service_pb2.Progress]:
        while not self._stopping:
            changed, standing = self._changed, self._desk.standing(campaign)
            state, last = standing.campaign.state, standing.last
            yield service_pb2.Progress(
                state=state,
                rounds=0 if last is None else last.number + 1,
                taking=standing.taking,
                reports=standing.reports,
                owners=standing.owners,
            )
            if state in (CALIBRATED, PUBLISHED) or (
                state == CLOSED and standing.campaign.reason is not None
            ):
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)

    def _guarded(self, work: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        """A handler that is told who calls and about what; whatever is refused ends the call with a
        status and is counted."""

        async def call(request: Any, context: Any) -> Any:
            owner = None
            try:
                owner = await self._who(context)
                with self._calls.one(), self._turnstile.call(owner.id):
                    return await work(
                        request,
                        context,
                        owner,
                        self._desk.standing(_metadata(context).get(CAMPAIGN, "")),
                    )
            except Refused as refused:
                await self._refuse(context, owner, refused.code)

        return call

    async def _refuse(self, context: Any, owner: Owner | None, code: int) -> None:
        campaign = _metadata(context).get(CAMPAIGN, "")
        self._reject(
            campaign if self._desk.knows(campaign) and owner is not None else "", owner, code
        )
        await context.abort(
            STATUS.get(code, grpc.StatusCode.FAILED_PRECONDITION), wire.Code.Name(code)
        )

    def _reject(self, campaign: str, owner: Owner | None, code: int) -> None:
        """Count a refusal, when the disk next has time."""
        self._writer.put(
            Rejection(campaign, "" if owner is None else owner.name, wire.Code.Name(code))
        )

    async def _who(self, context: Any) -> Owner:
        """The owner of the token; under mutual TLS its certificate bears that one name, so a stolen
        token is no use."""
        scheme, _, token = _metadata(context).get(AUTHORIZATION, "").partition(" ")
        if scheme != "Bearer" or not token:
            raise Refused(wire.Code.UNAUTHENTICATED)
        owner = await self._roll.who(token)
        if self._certified and list(context.auth_context().get("x509_common_name", ())) != [
            owner.name.encode()
        ]:
            raise Refused(wire.Code.UNAUTHENTICATED)
        return owner


@dataclass(frozen=True)
class Endpoint:
    """Where the server listens, and behind which certificates; without any it is open, for this
    machine alone."""

    address: str
    certificate: bytes | None = None
    key: bytes | None = None
    client_authority: bytes | None = None

    def add_to(self, server: Any) -> int:
        try:
            if self.certificate is None:
                return int(server.add_insecure_port(self.address))
            credentials = grpc.ssl_server_credentials(
                [(self.key, self.certificate)],
                self.client_authority,
                require_client_auth=self.client_authority is not None,
            )
            return int(server.add_secure_port(self.address, credentials))
        except RuntimeError:
            raise BadInput(
                f"cannot listen on {self.address}; accepted is HOST:PORT with a free port"
            ) from None


class Server:
    """The service behind a door, with the health checks of gRPC beside it."""

    def __init__(self, service: Service, door: Endpoint, limits: Limits, bounds: Bounds) -> None:
        self._checks = HealthChecks(asking=bounds.checks, watching=bounds.health_watches)
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.message_bytes + SOMEWHAT_BYTES),
                # Else windows grow to megabytes a stream, filled before anybody has asked who
                # sends.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", 60_000),
                # Whoever has no token has no call open, so its connection is soon closed: by these,
                # or as one too many.
                ("grpc.max_connection_idle_ms", round(1_000 * IDLE_SECONDS)),
                ("grpc.server_handshake_timeout_ms", round(1_000 * HANDSHAKE_SECONDS)),
                ("grpc.max_allowed_incoming_connections", limits.connections),
                # A stream that was given up counts until this process has dealt with it; who opens
                # more is cut off.
                ("grpc.max_concurrent_streams", STREAMS),
            ],
        )
        self._server.add_generic_rpc_handlers((service.handlers(), self._checks.handlers()))
        self.port = door.add_to(self._server)

    async def start(self) -> None:
        await self._server.start()

    def say(self, *, healthy: bool) -> None:
        """Answer health checks so from now on."""
        self._checks.say(healthy=healthy)

    def decline(self) -> None:
        """Tell health checks that this server is about to stop."""
        self._checks.say(healthy=False, over=True)

    async def stop(self) -> None:
        """Take no new calls, and give the open ones some time to end."""
        await self._server.stop(GRACE_SECONDS)


def _metadata(context: Any) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}


def _codecs(name: str) -> dict[str, Any]:
    call = CALLS[name]
    return {
        "request_deserializer": call.request.FromString,
        "response_serializer": call.reply.SerializeToString,
    }
