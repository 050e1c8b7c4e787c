"""An aggregator's keys: its signing key, and certificates for its servers and owners.

The certificates are for those who have no certificate authority of their own.
"""

import ipaddress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.protocol.errors import BadInput
from confide.protocol.files import write_new

SIGNING_KEY = "aggregator.key"
CERTIFICATES = ("ca.pem", "server.pem", "server.key")
OWNERS_KEY, OWNERS_CERTIFICATE = "owners.key", "owners.pem"
VALID, AUTHORITY_VALID = timedelta(days=365), timedelta(days=3650)
# What a common name may be, in bytes.
LONGEST_NAME = 64


def create_keys(
    folder: Path, *, address: str, now: datetime, signing: str = SIGNING_KEY
) -> list[Path]:
    """Write a signing key, and an authority with a server certificate for the address.

    Existing files are not replaced. `signing` is the name of the key's file.
    """
    files = {signing: Ed25519PrivateKey.generate().private_bytes_raw()}
    found = [name for name in CERTIFICATES if (folder / name).exists()]
    if found and len(found) < len(CERTIFICATES):
        missing = ", ".join(name for name in CERTIFICATES if name not in found)
        raise BadInput(
            f"{folder} holds {', '.join(found)} and no {missing}; accepted are all three or none "
            "of them"
        )
    if not found:
        files |= _certificates(address, now)
    return write_new({folder / name: content for name, content in files.items()})


def read_key(path: Path) -> Ed25519PrivateKey:
    """The key that signs plans."""
    try:
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as a private key of 32 bytes: {error}") from None


def read_pair(certificate: Path, key: Path) -> tuple[bytes, bytes]:
    """A server's certificate, followed by its chain, and its private key, both as PEM."""
    chain, private = read_certificates(certificate), _read(key)
    try:
        found = serialization.load_pem_private_key(private, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadInput(
            f"{key} is no private key that can be used: {error}; accepted is PEM without a password"
        ) from None
    if found.public_key() != x509.load_pem_x509_certificates(chain)[0].public_key():
        raise BadInput(
            f"{key} does not belong to the certificate {certificate}; accepted is the key it was "
            "made for"
        )
    return chain, private


def read_certificates(path: Path) -> bytes:
    """One certificate or more, as PEM."""
    found = _read(path)
    try:
        x509.load_pem_x509_certificates(found)
    except ValueError as error:
        raise BadInput(f"{path} is no certificate: {error}; accepted is PEM") from None
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; accepted is a PEM file") from None


def certify_owner(name: str, *, keys: Path, out: Path, now: datetime) -> list[Path]:
    """Write a key and a certificate that bears the owner's name.

    The certificate is signed by the owners' authority in the folder of keys.
    """
    if not name or len(name.encode(errors="replace")) > LONGEST_NAME or not name.isprintable():
        raise BadInput(
            f"owner is {name!r}; accepted in a certificate are 1 to {LONGEST_NAME} bytes of "
            "printable characters"
        )
    files = out / "owner.key", out / "owner.pem"
    if any(path.exists() for path in files):
        raise BadInput(
            f"{out} holds the files of an owner already; accepted is a folder of its own for each"
        )
    signer, key = _owners_authority(keys, now), ec.generate_private_key(ec.SECP256R1())
    usage = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])
    return write_new(
        dict(
            zip(
                files,
                (
                    _private(key),
                    _certificate(
                        name,
                        key,
                        issuer="Confide owners",
                        signer=signer,
                        extension=usage,
                        now=now,
                        valid=VALID,
                    ),
                ),
                strict=True,
            )
        )
    )


def _owners_authority(folder: Path, now: datetime) -> ec.EllipticCurvePrivateKey:
    """The key that signs owners' certificates, made once.

    Its certificate is made from the key, so a crash between the two files does no harm.
    """
    key_file, certificate_file = folder / OWNERS_KEY, folder / OWNERS_CERTIFICATE
    if not (folder / SIGNING_KEY).is_file():
        raise BadInput(
            f"{folder} holds no {SIGNING_KEY}; accepted is a folder of `confide-aggregator init`"
        )
    if certificate_file.exists() and not key_file.exists():
        raise BadInput(
            f"{folder} holds {OWNERS_CERTIFICATE} and no {OWNERS_KEY}; whoever has that key issues "
            "certificates"
        )
    write_new({key_file: _private(ec.generate_private_key(ec.SECP256R1()))})
    try:
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("it is of another kind")
        own = x509.BasicConstraints(ca=True, path_length=0)
        write_new(
            {
                certificate_file: _certificate(
                    "Confide owners",
                    key,
                    issuer="Confide owners",
                    signer=key,
                    extension=own,
                    now=now,
                    valid=AUTHORITY_VALID,
                )
            }
        )
        if (
            x509.load_pem_x509_certificate(certificate_file.read_bytes()).public_key()
            != key.public_key()
        ):
            raise ValueError(f"{OWNERS_CERTIFICATE} is of another key")
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"{key_file} cannot be used as the owners' authority: {error}") from None
    return key


def _certificates(address: str, now: datetime) -> dict[str, bytes]:
    """An authority that signs one server certificate.

    Its own key is not stored, so it can sign nothing else.
    """
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    try:
        subject: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        subject = x509.DNSName(address)
    names = x509.SubjectAlternativeName([subject])
    own = x509.BasicConstraints(ca=True, path_length=0)
    return {
        "ca.pem": _certificate(
            "Confide authority",
            authority,
            issuer="Confide authority",
            signer=authority,
            extension=own,
            now=now,
            valid=VALID,
        ),
        "server.pem": _certificate(
            "Confide server",
            server,
            issuer="Confide authority",
            signer=authority,
            extension=names,
            now=now,
            valid=VALID,
        ),
        "server.key": _private(server),
    }


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate(
    name: str,
    key: Any,
    *,
    issuer: str,
    signer: Any,
    extension: x509.ExtensionType,
    now: datetime,
    valid: timedelta,
) -> bytes:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    builder = x509.CertificateBuilder(
        named(issuer), named(name), key.public_key(), x509.random_serial_number()
    )
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + valid)
    return (
        builder.add_extension(extension, critical=False)
        .sign(signer, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
