"""An aggregator's keys: the one that signs plans, and certificates for its servers where no authority has given any."""

import ipaddress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocol.errors import BadInput
from protocol.files import write_new

SIGNING_KEY = "aggregator.key"
CERTIFICATES = ("ca.pem", "server.pem", "server.key")
VALID = timedelta(days=365)


def create_keys(folder: Path, *, address: str, now: datetime) -> list[Path]:
    """Write a signing key, and an authority with a server certificate for the address; what is there is not replaced."""
    files = {SIGNING_KEY: Ed25519PrivateKey.generate().private_bytes_raw()}
    found = [name for name in CERTIFICATES if (folder / name).exists()]
    if found and len(found) < len(CERTIFICATES):
        missing = ", ".join(name for name in CERTIFICATES if name not in found)
        raise BadInput(f"{folder} holds {', '.join(found)} and no {missing}; accepted are all three or none of them")
    if not found:
        files |= _certificates(address, now)
    return write_new({folder / name: content for name, content in files.items()})


def read_key(path: Path) -> Ed25519PrivateKey:
    """The key that signs plans."""
    try:
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as a private key of 32 bytes: {error}") from None


def _certificates(address: str, now: datetime) -> dict[str, bytes]:
    """An authority that signs one server certificate; its own key is not kept, so it can sign nothing else."""
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    try:
        subject: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        subject = x509.DNSName(address)
    names = x509.SubjectAlternativeName([subject])
    own = x509.BasicConstraints(ca=True, path_length=0)
    return {
        "ca.pem": _certificate("Confide authority", authority, authority, own, now),
        "server.pem": _certificate("Confide aggregator", server, authority, names, now),
        "server.key": server.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    }


def _certificate(name: str, key: Any, signer: Any, extension: x509.ExtensionType, now: datetime) -> bytes:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    builder = x509.CertificateBuilder(named("Confide authority"), named(name), key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + VALID)
    return (
        builder.add_extension(extension, critical=False).sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
