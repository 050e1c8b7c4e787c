"""Owners that mean no good, with any bytes under any metadata; and an aggregator that means no good either."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from protocol import service_pb2
from protocol import wire_pb2 as wire
from protocol.campaign import Plan, digest, sign_plan
from protocol.messages import ID_BYTES, write_query
from protocol.queries import Query
from protocol.service import AUTHORIZATION, CALLS, CAMPAIGN, MESSAGES, SERVICE, campaign_id
from tests.owners import KEY
from tests.servers import Running, client


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

    def announced(self, message: bytes) -> str:
        """Sent as an owner's last."""
        return self.stream(iter([message]), (MESSAGES, "1"))

    def stream(self, messages: Iterator[bytes], *more: tuple[str, str]) -> str:
        try:
            return str(wire.Code.Name(self._call(messages, *more).code))
        except grpc.RpcError as error:
            return str(error.details())

    def receipt(self, *messages: bytes, last: bool = True) -> tuple[str, int, int]:
        """Code, accepted and duplicates, of answers sent as an owner's last, or as if more followed."""
        found = self._call(iter(messages), *([(MESSAGES, str(len(messages)))] if last else []))
        return wire.Code.Name(found.code), found.accepted, found.duplicates

    def _call(self, messages: Iterator[bytes], *more: tuple[str, str]) -> wire.Receipt:
        call = self.channel.stream_unary(
            CALLS["Submit"].path, request_serializer=None, response_deserializer=wire.Receipt.FromString
        )
        receipt: wire.Receipt = call(messages, metadata=(*self.metadata, *more), timeout=20)
        return receipt


def fuzz(hand: Wire, valid: bytes, calls: int, rng: np.random.Generator) -> set[str]:
    """A message a call: random bytes, or a valid answer cut short and damaged; returns the codes that came back."""
    codes = set()
    for _ in range(calls):
        damaged = bytearray(valid[: int(rng.integers(1, len(valid)))])
        damaged[int(rng.integers(len(damaged)))] ^= int(rng.integers(1, 256))
        codes.add(hand.submit(rng.bytes(int(rng.integers(1, 200))) if rng.random() < 0.5 else bytes(damaged)))
    return codes


def _nothing() -> None:
    """What happens when an answer comes in, unless said otherwise."""


class Puppet:
    """An aggregator that says what it is told: any plan, any query; it keeps what owners send."""

    def __init__(self, plan: Plan, query: Query, *, round_: int = 0, receipt: str = "OK") -> None:
        self.signed = sign_plan(plan, KEY)
        self.campaign = campaign_id(digest(plan.to_bytes()))
        self.query = write_query(query, plan=digest(plan.to_bytes()), round_=round_)
        self.receipt, self.answers, self.on_submit = receipt, list[wire.Answer](), _nothing
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, self._handlers())])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _handlers(self) -> dict[str, Any]:
        asked = service_pb2.Asked(code="OK", query=self.query).SerializeToString()
        return {
            "FetchPlan": grpc.unary_unary_rpc_method_handler(lambda *_: self.signed),
            "PollQuery": grpc.unary_unary_rpc_method_handler(lambda *_: asked),
            "Submit": grpc.stream_unary_rpc_method_handler(self._submit),
        }

    def _submit(self, messages: Iterator[bytes], _: Any) -> bytes:
        found = [wire.Answer.FromString(message) for message in messages]
        self.answers += found
        self.on_submit()
        reports = sum(len(one.batch.ids) // ID_BYTES for one in found)
        # As the real one: who declines is told so.
        codes = [wire.Code.Name(one.code) for one in found if one.code != wire.Code.OK] or [self.receipt]
        return wire.Receipt(version=1, code=codes[0], accepted=reports).SerializeToString()

    def __enter__(self) -> "Puppet":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)

    @property
    def codes(self) -> list[str]:
        """What every message said."""
        return [str(wire.Code.Name(answer.code)) for answer in self.answers]

    def options(self, home: Path, records: Path, *more: Any) -> list[str]:
        """The owner's command that takes part, once."""
        token = home / "token"
        token.write_text("token")
        return [
            "contribute", "--aggregator", self.address, "--campaign", self.campaign, "--token-file", str(token),
            "--insecure-loopback", "--patience", "5", "--once", "--home", str(home), "--records", str(records), *map(str, more),
        ]  # fmt: skip

    def ask(self, home: Path, records: Path, *more: Any) -> int:
        """The exit code of that command."""
        return client(*self.options(home, records, *more))[0]
