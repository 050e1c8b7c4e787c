"""Hostile owners, which send any bytes with any metadata, and a hostile aggregator."""

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from confide.protocol.methods.base import Query
from confide.protocol.plan import Plan, digest, sign_plan, write_query
from confide.protocol.wire import service_pb2
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES, VERSION
from confide.protocol.wire.service import (
    AUTHORIZATION,
    CALLS,
    CAMPAIGN,
    MESSAGES,
    SERVICE,
    campaign_id,
)
from tests.support.owners.owners import KEY
from tests.support.servers.servers import Running, client

DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8
# The initial HTTP/2 flow-control window of streams and connections, and the setting that changes it
# for streams.
WINDOW, INITIAL_WINDOW = 65_535, 4


class Raw:
    """A connection that speaks HTTP/2 frame by frame.

    It can open a stream and abandon it, or stop within a message.
    """

    def __init__(self, port: int, authority: Path) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        try:
            self.socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        except OSError:
            plain.close()
            raise
        self._next, self._windows, self._unread, self.sent = 1, {0: WINDOW, 1: WINDOW}, b"", 0
        self._over = False
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0))

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def opened(self, path: str, *metadata: tuple[str, str]) -> bytes:
        """Return the frame that opens a stream."""
        usual = {
            ":method": "POST",
            ":scheme": "https",
            ":path": path,
            ":authority": "127.0.0.1",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        stream, self._next = self._next, self._next + 2
        fields = (b"\0" + _text(name) + _text(value) for name, value in (*usual.items(), *metadata))
        return _frame(HEADERS, stream, b"".join(fields))

    def left(self, path: str, *metadata: tuple[str, str]) -> bytes:
        """Return the frames that open a stream and reset it at once."""
        opened = self.opened(path, *metadata)
        return opened + _frame(RST_STREAM, self._next - 2, (8).to_bytes(4, "big"))

    def push(self, size: int, *, rest: int = 1) -> None:
        """Send as much of one message of this size as the server's windows allow so far.

        The message is on the first stream; its last `rest` bytes are never sent.
        """
        for kind, stream, data in self.heard(0.001):
            if kind == WINDOW_UPDATE and stream in self._windows:
                self._windows[stream] += int.from_bytes(data, "big")
            settings = [data[i : i + 6] for i in range(0, len(data), 6)] if kind == SETTINGS else []
            for setting in settings:
                if int.from_bytes(setting[:2], "big") == INITIAL_WINDOW:
                    self._windows[1] += int.from_bytes(setting[2:], "big") - WINDOW
        while (room := min(*self._windows.values(), size + 5 - rest - self.sent, 1 << 14)) > 0:
            data = b"" if self.sent else b"\0" + size.to_bytes(4, "big")
            self.socket.sendall(_frame(DATA, 1, data + bytes(room - len(data))))
            self.sent += room
            self._windows = {name: window - room for name, window in self._windows.items()}

    def gone(self) -> bool:
        """Whether the other side has closed the connection."""
        for _ in self.heard(0.001):
            pass
        return self._over

    def heard(self, seconds: float) -> Iterator[tuple[int, int, bytes]]:
        """Yield frames until none arrives for this long or the other side hangs up."""
        while True:
            self.socket.settimeout(seconds)
            try:
                more = self.socket.recv(1 << 16)
            except TimeoutError:
                return
            except OSError:
                more = b""
            finally:
                self.socket.settimeout(10)
            if not more:
                self._over = True
                return
            self._unread += more
            while len(self._unread) >= 9 and len(self._unread) >= (
                end := 9 + int.from_bytes(self._unread[:3], "big")
            ):
                yield self._unread[3], int.from_bytes(self._unread[5:9], "big"), self._unread[9:end]
                self._unread = self._unread[end:]


def _frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    # This flag marks headers as complete.
    flags = 4 if kind == HEADERS else 0
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


def _text(value: str) -> bytes:
    data = value.encode()
    assert len(data) < 127, "longer texts need more than one byte for their length"
    return bytes([len(data)]) + data


class Wire:
    """A client of one server that can send any bytes with any metadata."""

    def __init__(
        self, server: Running, campaign: str, token: str, certificates: tuple[bytes, ...] = ()
    ) -> None:
        authority = (server.place.keys / "ca.pem").read_bytes()
        credentials = grpc.ssl_channel_credentials(authority, *certificates)
        options = [("grpc.max_send_message_length", -1)]
        self.channel = grpc.secure_channel(f"127.0.0.1:{server.port}", credentials, options=options)
        self.metadata = ((CAMPAIGN, campaign), (AUTHORIZATION, f"Bearer {token}"))

    def submit(self, *messages: bytes) -> str:
        """Send messages; return the code that comes back, in a receipt or as a status."""
        return self.stream(iter(messages))

    def announced(self, message: bytes) -> str:
        """Send a message announced as an owner's last."""
        return self.stream(iter([message]), (MESSAGES, "1"))

    def stream(self, messages: Iterator[bytes], *more: tuple[str, str]) -> str:
        try:
            return str(wire.Code.Name(self._call(messages, *more).code))
        except grpc.RpcError as error:
            return str(error.details())

    def receipt(self, *messages: bytes, last: bool = True) -> tuple[str, int, int]:
        """Return code, accepted and duplicates for these answers.

        They are sent as an owner's last, or as if more followed.
        """
        found = self._call(iter(messages), *([(MESSAGES, str(len(messages)))] if last else []))
        return wire.Code.Name(found.code), found.accepted, found.duplicates

    def _call(self, messages: Iterator[bytes], *more: tuple[str, str]) -> wire.Receipt:
        call = self.channel.stream_unary(
            CALLS["Submit"].path,
            request_serializer=None,
            response_deserializer=wire.Receipt.FromString,
        )
        receipt: wire.Receipt = call(messages, metadata=(*self.metadata, *more), timeout=20)
        return receipt


def fuzz(hand: Wire, valid: bytes, calls: int, rng: np.random.Generator) -> set[str]:
    """Send one message per call and return the codes that came back.

    Messages are random bytes, or a valid answer cut short and damaged.
    """
    codes = set()
    for _ in range(calls):
        damaged = bytearray(valid[: int(rng.integers(1, len(valid)))])
        damaged[int(rng.integers(len(damaged)))] ^= int(rng.integers(1, 256))
        codes.add(
            hand.submit(
                rng.bytes(int(rng.integers(1, 200))) if rng.random() < 0.5 else bytes(damaged)
            )
        )
    return codes


def _nothing() -> None:
    """The default action when an answer arrives."""


class Puppet:
    """An aggregator that sends the given plan and query, and keeps the messages of owners."""

    def __init__(
        self,
        plan: Plan,
        query: Query,
        *,
        round_: int = 0,
        receipt: str = "OK",
        model: bytes | None = None,
    ) -> None:
        """`model` is the file that it sends as the plan's."""
        self.model, self.signed, self.fetched = model, sign_plan(plan, KEY), False
        self.campaign = campaign_id(digest(plan.to_bytes()))
        self.query = write_query(query, plan=digest(plan.to_bytes()), round_=round_)
        self.receipt, self.answers, self.on_submit = receipt, list[wire.Answer](), _nothing
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(SERVICE, self._handlers())]
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _handlers(self) -> dict[str, Any]:
        asked = service_pb2.Asked(code="OK", query=self.query).SerializeToString()
        piece = service_pb2.ModelPiece(
            code="CLOSED" if self.model is None else "OK", data=self.model or b""
        )
        return {
            "FetchModel": grpc.unary_unary_rpc_method_handler(
                lambda *_: self._sent(piece.SerializeToString())
            ),
            "FetchPlan": grpc.unary_unary_rpc_method_handler(lambda *_: self.signed),
            "PollQuery": grpc.unary_unary_rpc_method_handler(lambda *_: asked),
            "Submit": grpc.stream_unary_rpc_method_handler(self._submit),
        }

    def _sent(self, piece: bytes) -> bytes:
        self.fetched = True
        return piece

    def _submit(self, messages: Iterator[bytes], _: Any) -> bytes:
        found = [wire.Answer.FromString(message) for message in messages]
        self.answers += found
        self.on_submit()
        reports = sum(len(one.batch.ids) // ID_BYTES for one in found)
        # Like the real aggregator: an owner that declines gets its own code back.
        codes = [wire.Code.Name(one.code) for one in found if one.code != wire.Code.OK] or [
            self.receipt
        ]
        return wire.Receipt(version=VERSION, code=codes[0], accepted=reports).SerializeToString()

    def __enter__(self) -> "Puppet":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)

    @property
    def codes(self) -> list[str]:
        """The code of every message."""
        return [str(wire.Code.Name(answer.code)) for answer in self.answers]

    def options(self, home: Path, records: Path, *more: Any) -> list[str]:
        """Return the owner's command that takes part once."""
        token = home / "token"
        token.write_text("token")
        return [
            "contribute",
            "--aggregator",
            self.address,
            "--campaign",
            self.campaign,
            "--token-file",
            str(token),
            "--insecure-loopback",
            "--patience",
            "5",
            "--once",
            "--home",
            str(home),
            "--records",
            str(records),
            *map(str, more),
        ]

    def ask(self, home: Path, records: Path, *more: Any) -> int:
        """Run that command and return its exit code."""
        return client(*self.options(home, records, *more))[0]
