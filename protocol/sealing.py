"""Reports sealed to an aggregator, one by one, by HPKE (RFC 9180) in base mode.

X25519, HKDF-SHA256 and ChaCha20-Poly1305, from `cryptography`. A sealed report is AROUND bytes
longer than the report, opens only for the aggregator, and only in the campaign and round it is for.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_KEY, _REPORT = b"confide sealing key v1", b"confide sealed report v1\0"
# The encapsulated key and the tag.
AROUND = 32 + 16


def sealing_key(signing: Ed25519PrivateKey) -> X25519PrivateKey:
    """Derive the key that opens sealed reports from the key that signs plans.

    So an aggregator has one secret to keep. HKDF makes the two keys independent of each other.
    """
    derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_KEY)
    return X25519PrivateKey.from_private_bytes(derived.derive(signing.private_bytes_raw()))


def seal(report: bytes, recipient: X25519PublicKey, *, plan: bytes, round_: int) -> bytes:
    """Seal a report of a round of the campaign with this plan digest."""
    return _SUITE.encrypt(report, recipient, _info(plan, round_))


def unseal(sealed: bytes, key: X25519PrivateKey, *, plan: bytes, round_: int) -> bytes | None:
    """Return a report that was sealed to this key for this round; None if none was."""
    try:
        return _SUITE.decrypt(sealed, key, _info(plan, round_))
    except InvalidTag:
        return None


def _info(plan: bytes, round_: int) -> bytes:
    return _REPORT + plan + round_.to_bytes(4, "big")
