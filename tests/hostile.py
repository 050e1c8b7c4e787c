"""Owners that mean no good: any bytes under any metadata, straight to a server."""

from collections.abc import Iterator

import grpc
import numpy as np

from protocol import wire_pb2 as wire
from protocol.service import AUTHORIZATION, CALLS, CAMPAIGN, MESSAGES
from tests.servers import Running


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
        call = self.channel.stream_unary(
            CALLS["Submit"].path, request_serializer=None, response_deserializer=wire.Receipt.FromString
        )
        try:
            receipt = call(messages, metadata=(*self.metadata, *more), timeout=20)
        except grpc.RpcError as error:
            return str(error.details())
        return str(wire.Code.Name(receipt.code))


def fuzz(hand: Wire, valid: bytes, calls: int, rng: np.random.Generator) -> set[str]:
    """A message a call: random bytes, or a valid answer cut short and damaged; returns the codes that came back."""
    codes = set()
    for _ in range(calls):
        damaged = bytearray(valid[: int(rng.integers(1, len(valid)))])
        damaged[int(rng.integers(len(damaged)))] ^= int(rng.integers(1, 256))
        codes.add(hand.submit(rng.bytes(int(rng.integers(1, 200))) if rng.random() < 0.5 else bytes(damaged)))
    return codes
