"""The gRPC service: thin calls over the round cache, the report writer and the store.

A receipt is sent only after the reports that it acknowledges are durable.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.assembly import AssemblyMemory
from confide.aggregator.server.authentication import OwnerDirectory
from confide.aggregator.server.bounds import Bounds, Slots
from confide.aggregator.server.limits import (
    MessageMemory,
    RateLimiter,
    Reading,
    ServerLimits,
)
from confide.aggregator.server.model_files import ModelFiles
from confide.aggregator.server.rounds.round_cache import CachedCampaign, RoundCache
from confide.aggregator.server.shared_reading import SharedReading
from confide.aggregator.server.upload import Stream
from confide.aggregator.storage.enrolment import Enrolment, Owner
from confide.aggregator.storage.reports.submissions import Rejection
from confide.aggregator.storage.reports.writer import Writer
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import CALIBRATED, CLOSED, PUBLISHED, TRAINED
from confide.protocol.cards.card import PUBLIC
from confide.protocol.errors import Refused
from confide.protocol.wire import service_pb2
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.service import (
    AUTHORIZATION,
    CALLS,
    CAMPAIGN,
    MESSAGES,
    PIECE_BYTES,
    SERVICE,
)

# A client that watches a campaign hears from the server at least this often.
HEARTBEAT_SECONDS = 10.0
# The bytes of all answers that are not yet durable.
MOST_HELD = 64 << 20

STATUS: dict[int, Any] = {
    wire.Code.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    wire.Code.UNKNOWN_CAMPAIGN: grpc.StatusCode.NOT_FOUND,
    wire.Code.RATE_LIMITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    wire.Code.TIMED_OUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    wire.Code.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


@dataclass(frozen=True)
class OwnerCall:
    """One call of an enrolled owner about one campaign."""

    messages: Any
    context: Any
    owner: Owner
    campaign: CachedCampaign


class Service:
    """The calls of protocol/wire/service.proto.

    They run in one event loop; work that waits for the disk runs in threads.
    """

    def __init__(
        self,
        *,
        store: Store,
        writer: Writer,
        cache: RoundCache,
        limits: ServerLimits,
        status: ProcessStatus,
        bounds: Bounds,
        certified: bool,
    ) -> None:
        self._store, self._writer, self._cache, self._limits = store, writer, cache, limits
        self._certified = certified
        self._directory = OwnerDirectory(Enrolment(store.engine), strangers=bounds.strangers)
        self._calls, self._watches = Slots(bounds.calls), Slots(bounds.watches)
        self._rate_limiter = RateLimiter(limits, status, now=time.monotonic)
        self._reading, self._memory = Reading(limits.message_bytes), MessageMemory(MOST_HELD)
        self._assemblies, self._models = AssemblyMemory(), ModelFiles(store.model)
        self._changed, self._stopping = asyncio.Event(), False
        self._latest = SharedReading(self.read_campaigns, what="campaigns")

    async def prepare(self) -> None:
        """Read who is enrolled, before the first call."""
        await self._directory.refresh()

    async def read_campaigns(self) -> None:
        """Read all campaigns again, and tell all who watch if any has changed."""
        if await asyncio.to_thread(self._cache.refresh):
            self.wake()

    def wake(self, *, stopping: bool = False) -> None:
        """Tell all who watch that a campaign has changed, or that this server stops."""
        self._stopping = stopping
        self._changed.set()
        self._changed = asyncio.Event()

    def handlers(self) -> Any:
        """A handler for every call in the description of the service.

        All are declared as streams, which look the same on the wire as single messages: so a call
        is handled, and counted, from its start, and not from its first message.
        """
        asked = grpc.stream_unary_rpc_method_handler
        streamed = grpc.stream_stream_rpc_method_handler
        made = {
            "FetchPlan": asked(self._guarded(self._plan), **_codecs("FetchPlan")),
            "PollQuery": streamed(self._streamed(self._query, self._calls), **_codecs("PollQuery")),
            "FetchCard": asked(self._guarded(self._card), **_codecs("FetchCard")),
            "FetchModel": streamed(
                self._streamed(self._model, self._calls), **_codecs("FetchModel")
            ),
            "Watch": streamed(self._streamed(self._changes, self._watches), **_codecs("Watch")),
            # Answers stay bytes: they are stored as they came, and checked in one place.
            "Submit": asked(
                self._guarded(self._submit), **_codecs("Submit") | {"request_deserializer": None}
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, made)

    async def _plan(self, call: OwnerCall) -> wire.SignedPlan:
        return wire.SignedPlan.FromString(call.campaign.campaign.signed_plan)

    async def _query(self, owner: Owner, campaign: str) -> AsyncIterator[service_pb2.Asked]:
        found = await self._campaign(campaign)
        if not found.taking:
            yield service_pb2.Asked(code=wire.Code.CLOSED)
            return
        self._rate_limiter.send(owner.id, len(found.asked))
        for start in range(0, len(found.asked), PIECE_BYTES):
            piece = found.asked[start : start + PIECE_BYTES]
            yield service_pb2.Asked(code=wire.Code.OK, query=piece)

    async def _model(self, owner: Owner, campaign: str) -> AsyncIterator[service_pb2.ModelPiece]:
        found = (await self._campaign(campaign)).campaign
        file = await self._models.file(found.plan.model)
        if file is None:
            yield service_pb2.ModelPiece(code=wire.Code.CLOSED)
            return
        self._rate_limiter.send(owner.id, len(file.data))
        for start in range(0, len(file.data), PIECE_BYTES):
            piece = file.data[start : start + PIECE_BYTES]
            yield service_pb2.ModelPiece(code=wire.Code.OK, data=piece)

    async def _card(self, call: OwnerCall) -> service_pb2.CardJson:
        if call.campaign.campaign.state != PUBLISHED:
            return service_pb2.CardJson(code=wire.Code.CLOSED)
        card = await asyncio.to_thread(self._store.card, call.campaign.campaign.id, PUBLIC)
        return service_pb2.CardJson(code=wire.Code.OK, card=card)

    async def _submit(self, call: OwnerCall) -> wire.Receipt:
        name = call.campaign.campaign.id

        async def look_again() -> CachedCampaign:
            await self._latest.since(time.monotonic())
            return self._cache.campaign(name)

        said = _metadata(call.context).get(MESSAGES, "")
        announced = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else None
        stream = Stream(
            owner=call.owner,
            standing=call.campaign,
            writer=self._writer,
            rate_limiter=self._rate_limiter,
            limits=self._limits,
            reading=self._reading,
            memory=self._memory,
            look_again=look_again,
            known=lambda: self._owner(call.context),
            announced=announced,
            assemblies=self._assemblies,
        )
        receipt = await stream.take(call.messages)
        if receipt.code != wire.Code.OK and not stream.declined:
            self._reject(name, call.owner, receipt.code)
        return receipt

    async def _changes(self, _: Owner, campaign: str) -> AsyncIterator[service_pb2.Progress]:
        while not self._stopping:
            changed, found = self._changed, await self._campaign(campaign)
            state, last = found.campaign.state, found.last
            failed = state == CLOSED and found.campaign.reason is not None
            yield service_pb2.Progress(
                state=state,
                rounds=0 if last is None else last.number + 1,
                taking=found.taking,
                reports=found.reports,
                owners=found.owners,
                failed=failed,
            )
            if failed or state in (CALIBRATED, PUBLISHED, TRAINED):
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)

    async def _campaign(self, name: str) -> CachedCampaign:
        """The campaign of this id; one that is not known yet is looked for in the database."""
        if not self._cache.knows(name):
            await self._latest.since(time.monotonic())
        return self._cache.campaign(name)

    def _streamed(
        self, work: Callable[[Owner, str], AsyncIterator[Any]], slots: Slots
    ) -> Callable[[Any, Any], AsyncIterator[Any]]:
        """A handler that authenticates the owner before every message that the work yields."""

        async def handle(_: Any, context: Any) -> AsyncIterator[Any]:
            owner = None
            try:
                owner = await self._owner(context)
                with slots.one(), self._rate_limiter.call(owner.id):
                    async for message in work(owner, _metadata(context).get(CAMPAIGN, "")):
                        yield message
                        await self._owner(context)
            except Refused as refused:
                await self._refuse(context, owner, refused.code)

        return handle

    def _guarded(self, work: Callable[[OwnerCall], Any]) -> Callable[[Any, Any], Any]:
        """A handler that authenticates the owner and finds the campaign before the work.

        A refusal ends the call with a status, and is counted.
        """

        async def handle(messages: Any, context: Any) -> Any:
            owner = None
            try:
                owner = await self._owner(context)
                with self._calls.one(), self._rate_limiter.call(owner.id):
                    campaign = await self._campaign(_metadata(context).get(CAMPAIGN, ""))
                    return await work(OwnerCall(messages, context, owner, campaign))
            except Refused as refused:
                await self._refuse(context, owner, refused.code)

        return handle

    async def _refuse(self, context: Any, owner: Owner | None, code: int) -> None:
        campaign = _metadata(context).get(CAMPAIGN, "")
        self._reject(
            campaign if self._cache.knows(campaign) and owner is not None else "", owner, code
        )
        await context.abort(
            STATUS.get(code, grpc.StatusCode.FAILED_PRECONDITION), wire.Code.Name(code)
        )

    def _reject(self, campaign: str, owner: Owner | None, code: int) -> None:
        """Have the writer count a refusal."""
        self._writer.put(
            Rejection(campaign, "" if owner is None else owner.name, wire.Code.Name(code))
        )

    async def _owner(self, context: Any) -> Owner:
        """The owner of the token.

        Under mutual TLS its certificate must bear exactly that name, so that a token alone is of no
        use to a thief.
        """
        scheme, _, token = _metadata(context).get(AUTHORIZATION, "").partition(" ")
        if scheme != "Bearer" or not token:
            raise Refused(wire.Code.UNAUTHENTICATED)
        owner = await self._directory.owner_of(token)
        if self._certified and list(context.auth_context().get("x509_common_name", ())) != [
            owner.name.encode()
        ]:
            raise Refused(wire.Code.UNAUTHENTICATED)
        return owner


def _metadata(context: Any) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}


def _codecs(name: str) -> dict[str, Any]:
    call = CALLS[name]
    return {
        "request_deserializer": call.request.FromString,
        "response_serializer": call.reply.SerializeToString,
    }
