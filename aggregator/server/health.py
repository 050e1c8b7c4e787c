"""The health checks of gRPC.

They need no token, so they are bounded apart from the calls of owners: a client that opens as many
as there may be stops no owner.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from confide.aggregator.server.bounds import Slots
from confide.protocol.errors import Refused
from confide.protocol.wire.service import SERVICE

HEALTH = "grpc.health.v1.Health"
# How long the request may take to arrive.
ASKED_SECONDS = 2.0
Status = health_pb2.HealthCheckResponse


class HealthChecks:
    """Answers whether this server is healthy, once or whenever that changes.

    A client beyond the bound on watches is told to ask again instead.
    """

    def __init__(self, *, asking: int, watching: int) -> None:
        self._asking, self._watching = Slots(asking), Slots(watching)
        self._healthy, self._final = False, False
        self._changed = asyncio.Event()

    def set_health(self, *, healthy: bool, final: bool = False) -> None:
        """Answer with this from now on; after a final answer the server stays unhealthy."""
        self._final |= final
        self._healthy = healthy and not self._final
        self._changed.set()
        self._changed = asyncio.Event()

    def handlers(self) -> Any:
        """Both calls read their request themselves, so that each is counted from its start."""
        codecs = {
            "request_deserializer": health_pb2.HealthCheckRequest.FromString,
            "response_serializer": Status.SerializeToString,
        }
        made = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check, **codecs),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch, **codecs),
        }
        return grpc.method_handlers_generic_handler(HEALTH, made)

    async def _check(self, requests: AsyncIterator[Any], context: Any) -> Any:
        status = self._status(await self._asked(requests, context))
        if status == Status.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return Status(status=status)

    async def _watch(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        service, last = await self._asked(requests, context), None
        try:
            with self._watching.one():
                while True:
                    changed, status = self._changed, self._status(service)
                    if status != last:
                        yield Status(status=status)
                    if self._final:
                        return
                    last = status
                    await changed.wait()
        except Refused:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "too many watch; ask again instead")

    def _status(self, service: str) -> int:
        if service not in ("", SERVICE):
            return Status.SERVICE_UNKNOWN
        return Status.SERVING if self._healthy else Status.NOT_SERVING

    async def _asked(self, requests: AsyncIterator[Any], context: Any) -> str:
        """The service that is asked about."""
        try:
            with self._asking.one():
                async with asyncio.timeout(ASKED_SECONDS):
                    async for request in requests:
                        return str(request.service)
            return ""
        except Refused:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many checks at a time")
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no request came")
        raise AssertionError("abort does not return")
