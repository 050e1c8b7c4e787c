"""The aggregator at the other end of a gRPC channel. Calls that fail for a passing reason are made again, later and later."""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from protocol import service_pb2
from protocol import wire_pb2 as wire
from protocol.errors import ConfideError
from protocol.service import AUTHORIZATION, CALLS, CAMPAIGN, LARGEST_ANSWER, MESSAGES

log = logging.getLogger(__name__)
Reply = TypeVar("Reply")

FIRST_DELAY, LONGEST_DELAY = 0.2, 30.0
CALL_SECONDS = 30.0
SUBMIT_SECONDS = 900.0
# Longer than the server ever stays silent on a watch.
WATCH_SECONDS = 300.0
# States in which a campaign takes no more answers.
ENDED = ("closed", "calibrated", "published")
_PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}


class Unreachable(ConfideError):
    """The aggregator could not be reached, or did not let this owner in."""


@dataclass(frozen=True)
class Access:
    """What a channel is opened with; without an authority it is open, for an aggregator on this machine."""

    address: str
    token: str
    authority: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def channel(self) -> Any:
        # Reconnecting is this module's business, and a large answer is split before it is sent.
        options = [("grpc.max_send_message_length", 2 * LARGEST_ANSWER), ("grpc.max_reconnect_backoff_ms", 2_000)]
        if self.authority is None:
            return grpc.insecure_channel(self.address, options=options)
        credentials = grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)
        return grpc.secure_channel(self.address, credentials, options=options)


class Aggregator:
    """The calls of one campaign. `patience` is how many seconds a call is tried again before it is given up."""

    def __init__(self, access: Access, campaign: str, *, patience: float, longest_delay: float = LONGEST_DELAY) -> None:
        self._channel, self._patience, self._longest_delay = access.channel(), patience, longest_delay
        self._metadata = ((CAMPAIGN, campaign), (AUTHORIZATION, f"Bearer {access.token}"))

    def close(self) -> None:
        self._channel.close()

    def plan(self) -> bytes:
        """The signed plan."""
        found: wire.SignedPlan = self._patiently(lambda: self._call("FetchPlan"))
        return found.SerializeToString(deterministic=True)

    def query(self) -> bytes | None:
        """The query that takes answers now, if one does."""
        asked: service_pb2.Asked = self._patiently(lambda: self._call("PollQuery"))
        return asked.query if asked.code == wire.Code.OK else None

    def card(self) -> str | None:
        """The card as JSON, once it is published."""
        found: service_pb2.CardJson = self._patiently(lambda: self._call("FetchCard"))
        return found.card if found.code == wire.Code.OK else None

    def submit(self, answers: Iterable[bytes]) -> wire.Receipt:
        """Send answers until the aggregator holds them durably, or refuses one. Sending again changes nothing."""
        pieces = list(answers)

        def send() -> wire.Receipt:
            # Already bytes, and sent as they are.
            stream = self._channel.stream_unary(
                CALLS["Submit"].path, request_serializer=None, response_deserializer=CALLS["Submit"].reply.FromString
            )
            announced = (MESSAGES, str(len(pieces)))
            receipt: wire.Receipt = stream(iter(pieces), timeout=SUBMIT_SECONDS, metadata=(*self._metadata, announced))
            return receipt

        return self._patiently(send)

    def watch(self) -> Iterator[service_pb2.Progress]:
        """Where the campaign stands: now, and whenever that changes, until it is over."""
        call = CALLS["Watch"]
        delays = self._delays()
        while True:
            try:
                stream = self._channel.unary_stream(
                    call.path, request_serializer=call.request.SerializeToString, response_deserializer=call.reply.FromString
                )
                for progress in stream(call.request(), timeout=WATCH_SECONDS, metadata=self._metadata):
                    yield progress
                    delays = self._delays()
                    if progress.state in ENDED:
                        return
            except grpc.RpcError as error:
                self._wait(error, delays)

    def _call(self, name: str) -> Any:
        call = CALLS[name]
        unary = self._channel.unary_unary(
            call.path, request_serializer=call.request.SerializeToString, response_deserializer=call.reply.FromString
        )
        return unary(call.request(), timeout=CALL_SECONDS, metadata=self._metadata)

    def _patiently(self, attempt: Callable[[], Reply]) -> Reply:
        delays = self._delays()
        while True:
            try:
                return attempt()
            except grpc.RpcError as error:
                self._wait(error, delays)

    def _wait(self, error: Any, delays: Iterator[float]) -> None:
        status, detail = error.code(), str(error.details())
        if status not in _PASSING:
            raise Unreachable(_explained(detail)) from None
        delay = next(delays, None)
        if delay is None:
            raise Unreachable(f"the aggregator did not answer for {self._patience:g} s: {detail}") from None
        log.info("trying again in %.1f s: %s", delay, detail)
        time.sleep(delay)

    def _delays(self) -> Iterator[float]:
        """Twice as long each time, shortened by chance, so that many owners do not come back at once."""
        until, longest = time.monotonic() + self._patience, FIRST_DELAY
        while time.monotonic() < until:
            yield random.uniform(longest / 2, longest)
            longest = min(2 * longest, self._longest_delay)


_EXPLAINED = {
    "UNAUTHENTICATED": "the aggregator does not accept this token, or not together with this certificate",
    "UNKNOWN_CAMPAIGN": "the aggregator has no campaign of this id",
}


def _explained(detail: str) -> str:
    return _EXPLAINED.get(detail, f"the aggregator refuses the call: {detail}")
