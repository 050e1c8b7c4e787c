"""What a plan says of its shuffler, and what a shuffler signs of a round that it hands over."""

import hashlib
from dataclasses import asdict, dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from confide.protocol.errors import BadInput, Refused
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse, serialise

# Signatures cover this prefix too, so that a signature over a handover is valid for nothing else.
_SIGNED = b"confide handover v1\0"
# The most reports of a round, which a shuffler mixes in memory.
MOST_CROWD = 10**7


@dataclass(frozen=True)
class Shuffling:
    """The part of a plan about its shuffler.

    Owners send sealed reports to whoever shows a TLS certificate of the `authority`, and to nobody
    else. The shuffler hands over rounds of at least `crowd` reports, signed by its `key`; the
    reports are sealed to `recipient`, a key of the aggregator.
    """

    key: bytes
    authority: bytes
    recipient: bytes
    crowd: int

    def __post_init__(self) -> None:
        for name in ("key", "authority", "recipient"):
            if len(getattr(self, name)) != 32:
                raise BadInput(
                    f"{name} of the shuffler has {len(getattr(self, name))} bytes; accepted are 32"
                )
        if not 1 <= self.crowd <= MOST_CROWD:
            raise BadInput(f"crowd is {self.crowd}; accepted are 1 to {MOST_CROWD}")

    @staticmethod
    def of(message: wire.Shuffling) -> "Shuffling":
        """Read the part of a plan's message."""
        return Shuffling(message.key, message.authority, message.recipient, message.crowd)


@dataclass(frozen=True)
class Handover:
    """A round that a shuffler hands over: how many reports, and which.

    `digest` is `handover_digest` of them. `owners` is how many owners' reports were handed over in
    the campaign up to this round, and `largest` the most of one of them: so much the aggregator
    needs to know of who sent, and no more.
    """

    plan: bytes
    round: int
    reports: int
    digest: bytes
    owners: int
    largest: int

    def sign(self, key: Ed25519PrivateKey) -> wire.SignedHandover:
        """Return the handover with the shuffler's signature."""
        data = serialise(wire.Handover(**asdict(self)))
        return wire.SignedHandover(handover=data, signature=key.sign(_SIGNED + data))


def open_handover(signed: wire.SignedHandover, *, key: bytes) -> Handover:
    """Read a handover that this key signed; refuse any other with a code."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signed.signature, _SIGNED + signed.handover)
    except (InvalidSignature, ValueError):
        raise Refused(wire.Code.BAD_SIGNATURE) from None
    message = parse(wire.Handover, signed.handover)
    return Handover(*(getattr(message, name) for name in Handover.__dataclass_fields__))


def check_handover(batch: wire.ReportBatch, shuffling: Shuffling | None) -> None:
    """Refuse a batch that did not come the way its plan says.

    With a `shuffling`, it must carry a handover of that shuffler for its own campaign and round;
    without, it must carry none.
    """
    if batch.HasField("handover") != (shuffling is not None):
        raise Refused(wire.Code.MALFORMED if shuffling is None else wire.Code.SHUFFLER_ONLY)
    if shuffling is not None:
        handover = open_handover(batch.handover, key=shuffling.key)
        if (handover.plan, handover.round) != (batch.plan, batch.round):
            raise Refused(wire.Code.WRONG_ROUND)


def check_apart(shuffling: Shuffling | None, *, signer: bytes) -> None:
    """Refuse a plan whose signer names itself as the shuffler, between owners and itself."""
    if shuffling is not None and shuffling.key == signer:
        raise Refused(wire.Code.SHUFFLER_NOT_ALLOWED)


def handover_digest(ids: bytes, sealed: bytes) -> bytes:
    """Return the SHA-256 over reports, which the caller has put in the order of their ids."""
    return hashlib.sha256(hashlib.sha256(ids).digest() + hashlib.sha256(sealed).digest()).digest()


def authority_digest(pem: bytes) -> bytes:
    """Return the SHA-256 of all certificates of an authority's file, however the file is laid out.

    Whoever accepts exactly these certificates accepts nobody else's.
    """
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise BadInput(f"the authority is no certificate: {error}; accepted is PEM") from None
    der = [one.public_bytes(serialization.Encoding.DER) for one in found]
    return hashlib.sha256(b"".join(der)).digest()
