"""Serialise messages, and parse untrusted bytes."""

from collections.abc import Iterable
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire

AnyMessage = TypeVar("AnyMessage", bound=Message)

VERSION = 2
ID_BYTES = 16


def parse(kind: type[AnyMessage], data: bytes) -> AnyMessage:
    """Decode a message that is exactly as long as its known fields need, or refuse.

    Decoders keep fields they do not know and take the last of a field that comes twice, so a
    message could otherwise carry any number of bytes that no check looks at.
    """
    try:
        message = kind.FromString(data)
    except DecodeError:
        raise Refused(wire.Code.MALFORMED) from None
    # Typed as Any because protobuf's stubs lack this method.
    whole: Any = message
    # Another version may have fields that this one does not know; it gets its own code.
    if getattr(whole, "version", VERSION) != VERSION:
        raise Refused(wire.Code.WRONG_VERSION)
    whole.DiscardUnknownFields()
    if message.ByteSize() != len(data):
        raise Refused(wire.Code.MALFORMED)
    return message


def serialise(message: Message) -> bytes:
    """Return the bytes of a message, which are the same on every machine and in every run."""
    return message.SerializeToString(deterministic=True)


def plain_values(message: Message, names: Iterable[str]) -> dict[str, Any]:
    """Return these fields; repeated ones, which protobuf keeps in containers, as tuples."""
    values = {name: getattr(message, name) for name in names}
    return {
        name: value if isinstance(value, (str, int, float, bytes)) else tuple(value)
        for name, value in values.items()
    }
