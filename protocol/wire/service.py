"""The calls of the gRPC service as plain values, read off the compiled description: what both sides
build their ends from."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from confide.protocol.wire import service_pb2

CAMPAIGN, AUTHORIZATION, MESSAGES = "confide-campaign", "authorization", "confide-messages"
CAMPAIGN_DIGITS = 16
# Answers of many reports are split into messages of this size; eight reports of the most labels
# that a plan may have are not split, and take somewhat more. No aggregator may take less than the
# larger.
PIECE_BYTES = 1 << 20
LARGEST_PIECE = PIECE_BYTES + (1 << 16)


@dataclass(frozen=True)
class Call:
    """One call: where it is found, what goes in and what comes out."""

    path: str
    request: type[Any]
    reply: type[Any]


def _calls() -> dict[str, Call]:
    service = service_pb2.DESCRIPTOR.services_by_name["Aggregator"]
    return {
        method.name: Call(
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
        )
        for method in service.methods
    }


SERVICE: str = service_pb2.DESCRIPTOR.services_by_name["Aggregator"].full_name
CALLS = _calls()


def campaign_id(plan_digest: bytes) -> str:
    """What a campaign is called on the wire and on command lines."""
    return plan_digest.hex()[:CAMPAIGN_DIGITS]


def is_campaign_id(text: str) -> bool:
    """Whether a campaign could be called that."""
    return re.fullmatch(f"[0-9a-f]{{{CAMPAIGN_DIGITS}}}", text) is not None


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT never leaves this machine; only there may a connection go without TLS."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
