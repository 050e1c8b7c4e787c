"""The calls of the gRPC service as plain values, from which both sides build their ends.

They are read from the compiled service description.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from confide.protocol.exact.lattice import MOST_WEIGHTS
from confide.protocol.wire import service_pb2

CAMPAIGN, AUTHORIZATION, MESSAGES = "confide-campaign", "authorization", "confide-messages"
CAMPAIGN_DIGITS = 16
# Answers of many reports are split into messages of this size. Eight reports with the most labels
# that a plan may have are not split and take somewhat more. Every aggregator must accept messages
# of the larger size.
PIECE_BYTES = 1 << 20
LARGEST_PIECE = PIECE_BYTES + (1 << 16)
# The longest query: the most weights that a plan may have, and what stands around them.
MOST_QUERY = 4 * MOST_WEIGHTS + (1 << 16)
# The longest file of a model that an owner fetches.
MOST_MODEL = 1 << 28


@dataclass(frozen=True)
class Call:
    """One call: its path, its request and its reply."""

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
    """Return the name of a campaign on the wire and on command lines."""
    return plan_digest.hex()[:CAMPAIGN_DIGITS]


def is_campaign_id(text: str) -> bool:
    """Return whether a text has the form of a campaign's name."""
    return re.fullmatch(f"[0-9a-f]{{{CAMPAIGN_DIGITS}}}", text) is not None


def is_plan_name(text: str) -> bool:
    """Return whether a text has the form of a campaign's name, or of the digest of its plan."""
    return is_campaign_id(text) or re.fullmatch("[0-9a-f]{64}", text) is not None


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT is on this machine; only then may a connection go without TLS."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
