"""An aggregator behind a gRPC channel; calls that fail for a passing reason are tried again."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from confide.client.transport.retry import Patience, Tries, Unreachable
from confide.protocol.commands.terminal import printable
from confide.protocol.plan import digest
from confide.protocol.shuffling import authority_digest
from confide.protocol.wire import service_pb2
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.service import (
    AUTHORIZATION,
    CALLS,
    CAMPAIGN,
    CAMPAIGN_DIGITS,
    MESSAGES,
    MOST_MODEL,
    MOST_QUERY,
)

Reply = TypeVar("Reply")

CALL_SECONDS = 30.0
SUBMIT_SECONDS = 900.0
# The longest query passes in this time at 60 KB a second, the longest model at 1 MB.
FETCH_SECONDS = 300.0
# Longer than the server ever stays silent on a watch.
WATCH_SECONDS = 300.0
# Characters of a message of the other side that are shown.
MOST_DETAIL = 200
# States in which a campaign takes no more answers.
ENDED = ("closed", "calibrated", "published", "trained")
_PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}
# Marks of a TLS handshake that would fail again; a peer that dies only closes the socket.
_HANDSHAKE = ("SSL_ERROR_SSL", "Custom verification check failed")


@dataclass(frozen=True)
class Access:
    """What a channel is opened with.

    Without an authority it has no TLS, for an aggregator on this machine.
    """

    address: str
    token: str
    authority: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    @property
    def route(self) -> bytes:
        """The digest of the authority that the other side shows a certificate of; empty: none."""
        return b"" if self.authority is None else authority_digest(self.authority)

    def channel(self) -> Any:
        # This module decides when to try again.
        options = [("grpc.max_reconnect_backoff_ms", 2_000)]
        if self.authority is None:
            return grpc.insecure_channel(self.address, options=options)
        credentials = grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)
        return grpc.secure_channel(self.address, credentials, options=options)


class Aggregator:
    """The calls of one campaign, each tried again until patience is over."""

    def __init__(self, access: Access, campaign: str, *, patience: Patience) -> None:
        self.campaign, self.patience = campaign, patience
        self._address, self._channel = access.address, access.channel()
        self.route = access.route
        self._metadata = (
            (CAMPAIGN, campaign[:CAMPAIGN_DIGITS]),
            (AUTHORIZATION, f"Bearer {access.token}"),
        )

    def close(self) -> None:
        self._channel.close()

    def plan(self) -> bytes:
        """The signed plan of the campaign that was named; the plan of another one is an error.

        The campaign may be named by the whole digest of its plan: who makes two plans can give them
        the same id, with some billions of tries.
        """
        found: wire.SignedPlan = self._patiently(lambda: self._call("FetchPlan"))
        sent = digest(found.plan).hex()
        if not sent.startswith(self.campaign):
            raise Unreachable(
                f"the aggregator sent the plan of campaign {sent}; asked for was {self.campaign}"
            )
        return found.SerializeToString(deterministic=True)

    def query(self) -> bytes | None:
        """The query that takes answers now, or None; a long one comes in pieces."""
        return self._fetched("PollQuery", lambda asked: asked.query, most=MOST_QUERY)

    def model(self) -> bytes | None:
        """The file of the plan's model, or None if the aggregator keeps none."""
        return self._fetched("FetchModel", lambda piece: piece.data, most=MOST_MODEL)

    def _fetched(self, name: str, content: Callable[[Any], bytes], *, most: int) -> bytes | None:
        return self._patiently(lambda: self._fetch(name, content, most=most))

    def _fetch(self, name: str, content: Callable[[Any], bytes], *, most: int) -> bytes | None:
        pieces, size = [], 0
        stream = self._stream(name, seconds=FETCH_SECONDS)
        for message in stream:
            size += len(content(message))
            if message.code != wire.Code.OK or size > most:
                stream.cancel()
                break
            pieces.append(content(message))
        if size > most:
            raise Unreachable(
                f"the aggregator sends more than {most} bytes to {name}; accepted are at most so "
                "many"
            )
        return b"".join(pieces) or None

    def card(self) -> str | None:
        """The card as JSON, or None before it is published."""
        found: service_pb2.CardJson = self._patiently(lambda: self._call("FetchCard"))
        return found.card if found.code == wire.Code.OK else None

    def submit(self, answers: Iterable[bytes], *, ask: Callable[[], None]) -> wire.Receipt:
        """Send answers until the aggregator holds them durably, or refuses one.

        Sending again changes nothing. `ask` is called before every try, and raises an exception to
        end them.
        """
        pieces = list(answers)

        def send() -> wire.Receipt:
            ask()
            # The answers are bytes already.
            stream = self._channel.stream_unary(
                CALLS["Submit"].path,
                request_serializer=None,
                response_deserializer=CALLS["Submit"].reply.FromString,
            )
            announced = (MESSAGES, str(len(pieces)))
            receipt: wire.Receipt = stream(
                iter(pieces), timeout=SUBMIT_SECONDS, metadata=(*self._metadata, announced)
            )
            return receipt

        return self._patiently(send)

    def watch(self) -> Iterator[service_pb2.Progress]:
        """Yield the state of the campaign, now and at every change, until it is over."""
        tries = self.patience.tries()
        while True:
            heard = False
            try:
                for progress in self._stream("Watch", seconds=WATCH_SECONDS):
                    yield progress
                    heard, tries = True, self.patience.tries()
                    if progress.state in ENDED:
                        return
            except grpc.RpcError as error:
                # The deadline of a watch that has reported something is no failure.
                if not heard or error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._wait(error, tries)

    def _stream(self, name: str, *, seconds: float) -> Any:
        call = CALLS[name]
        stream = self._channel.unary_stream(
            call.path,
            request_serializer=call.request.SerializeToString,
            response_deserializer=call.reply.FromString,
        )
        return stream(call.request(), timeout=seconds, metadata=self._metadata)

    def _call(self, name: str) -> Any:
        call = CALLS[name]
        unary = self._channel.unary_unary(
            call.path,
            request_serializer=call.request.SerializeToString,
            response_deserializer=call.reply.FromString,
        )
        return unary(call.request(), timeout=CALL_SECONDS, metadata=self._metadata)

    def _patiently(self, attempt: Callable[[], Reply]) -> Reply:
        tries = self.patience.tries()
        while True:
            try:
                return attempt()
            except grpc.RpcError as error:
                self._wait(error, tries)

    def _wait(self, error: Any, tries: Tries) -> None:
        connecting, _, last = str(error.details()).rpartition("last error: ")
        detail = printable(last)[:MOST_DETAIL]
        if error.code() not in _PASSING:
            raise Unreachable(
                _EXPLAINED.get(detail, f"the aggregator refuses the call: {detail}")
            ) from None
        if any(mark in detail for mark in _HANDSHAKE):
            raise Unreachable(
                f"no TLS with {self._address} ({detail}): --ca must be its authority, and its "
                "certificate must name this host"
            ) from None
        if connecting and "Socket closed" in detail:
            detail += ", at once: it may expect TLS, or a certificate of yours"
        tries.wait(f"no answer from {self._address} ({detail})")


_EXPLAINED = {
    "UNAUTHENTICATED": (
        "the aggregator does not accept this token, or not together with this certificate"
    ),
    "UNKNOWN_CAMPAIGN": "the aggregator has no campaign of this id",
}
