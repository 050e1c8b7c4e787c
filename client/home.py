"""An owner's folder: policy, secret key and ledger side by side."""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from client.ledger import Ledger
from client.policy import TEMPLATE, Policy, read_policy
from protocol.errors import BadInput
from protocol.files import write_new
from protocol.sampling import os_entropy

SECRET_BYTES = 32


@dataclass(frozen=True)
class Home:
    """Where an owner's files are."""

    folder: Path

    @property
    def policy_file(self) -> Path:
        return self.folder / "policy.toml"

    @property
    def secret_file(self) -> Path:
        return self.folder / "secret.key"

    @property
    def node_key_file(self) -> Path:
        return self.folder / "node.key"

    @property
    def node_public_file(self) -> Path:
        return self.folder / "node.pub"

    @property
    def ledger_file(self) -> Path:
        return self.folder / "ledger.sqlite"

    def create(self) -> list[Path]:
        """Write a commented policy, a fresh secret and a node's keys where there are none yet; returns what was written."""
        files = {self.policy_file: TEMPLATE.encode(), self.secret_file: os_entropy(SECRET_BYTES)}
        if not self.node_key_file.exists():
            files |= dict(zip((self.node_key_file, self.node_public_file), _node_keys(), strict=True))
        return write_new(files)

    def policy(self) -> Policy:
        return read_policy(self.policy_file)

    def secret(self) -> bytes:
        """The key that names and places records; losing it makes old spends unrecognisable, so it is never made anew."""
        try:
            secret = self.secret_file.read_bytes()
        except OSError as error:
            raise BadInput(f"{self.secret_file}: {error.strerror}; `confide-client init` makes one for a new folder") from None
        if len(secret) != SECRET_BYTES:
            raise BadInput(f"{self.secret_file} holds {len(secret)} bytes; a secret has {SECRET_BYTES}")
        return secret

    def ledger(self) -> Ledger:
        if not self.folder.is_dir():
            raise BadInput(f"{self.folder} does not exist; `confide-client init` makes it")
        return Ledger(self.ledger_file)


def _node_keys() -> tuple[bytes, bytes]:
    """The private and public key, as OpenSSH writes them, that a Flower node logs in with."""
    key = ec.generate_private_key(ec.SECP384R1())
    ssh = serialization.Encoding.OpenSSH
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    return private, key.public_key().public_bytes(ssh, serialization.PublicFormat.OpenSSH) + b"\n"
