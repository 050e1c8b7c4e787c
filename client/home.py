"""The owner's folder: policy, secret key, ledger and cached scores, and its backups."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy, read_policy
from confide.client.policy_template import TEMPLATE
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.files import write_new

SECRET_BYTES = 32


@dataclass(frozen=True)
class Home:
    """The owner's folder and the names of the files in it."""

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

    @property
    def scores_folder(self) -> Path:
        return self.folder / "scores"

    @property
    def settings(self) -> tuple[Path, ...]:
        """Every file but the ledger."""
        return self.policy_file, self.secret_file, self.node_key_file, self.node_public_file

    def create(self) -> list[Path]:
        """Write missing files (policy, secret, ledger, a node's keys) and return their paths.

        The policy is commented. A secret and a ledger belong together, so if one of them is lost,
        the other is never paired with a new one.
        """
        if self.secret_file.exists() != self.ledger_file.exists():
            held, lost = (self.secret_file, self.ledger_file)[
                :: 1 if self.secret_file.exists() else -1
            ]
            raise BadInput(
                f"{held} is there and {lost} is not: a new one would forget what your records have "
                "spent. Accepted is a backup (`confide-client restore`), or an empty folder"
            )
        files = {self.policy_file: TEMPLATE.encode(), self.secret_file: os_entropy(SECRET_BYTES)}
        if not self.node_key_file.exists():
            files |= dict(
                zip((self.node_key_file, self.node_public_file), _node_keys(), strict=True)
            )
        written = write_new(files)
        if self.secret_file in written:
            Ledger(self.ledger_file).bind(self.secret())
            written.append(self.ledger_file)
        return written

    def policy(self) -> Policy:
        return read_policy(self.policy_file)

    def secret(self) -> bytes:
        """Read the key that derives the names of records.

        Under another key no earlier spend would be recognised, so a lost secret is never replaced
        by a new one.
        """
        try:
            secret = self.secret_file.read_bytes()
        except OSError as error:
            raise BadInput(
                f"{self.secret_file}: {error.strerror}; `confide-client init` makes one for a new "
                "folder"
            ) from None
        if len(secret) != SECRET_BYTES:
            raise BadInput(
                f"{self.secret_file} holds {len(secret)} bytes; a secret has {SECRET_BYTES}"
            )
        return secret

    def ledger(self) -> Ledger:
        """Open the ledger, if it belongs to the secret beside it."""
        if not self.folder.is_dir():
            raise BadInput(f"{self.folder} does not exist; `confide-client init` makes it")
        if not self.ledger_file.exists():
            raise BadInput(
                f"{self.ledger_file} does not exist: without it nobody knows what your records "
                "have spent. Accepted is a backup (`confide-client restore`), or a new folder "
                "(`confide-client init`)"
            )
        ledger = Ledger(self.ledger_file)
        ledger.bind(self.secret())
        ledger.check_newest()
        return ledger

    def backup(self, folder: Path) -> None:
        """Copy everything except cached scores to a new folder, the ledger as of one moment."""
        ledger, aside = self.ledger(), Home(folder.with_name(f".{folder.name}.partial"))
        if folder.exists():
            raise BadInput(f"{folder} exists; accepted is the name of a new folder")
        try:
            aside.folder.mkdir(mode=0o700, parents=True)
            ledger.backup(aside.ledger_file)
            write_new(
                {
                    aside.folder / path.name: path.read_bytes()
                    for path in self.settings
                    if path.exists()
                }
            )
            aside.folder.rename(folder)
        except OSError as error:
            raise BadInput(f"{folder} cannot be written: {error.strerror}") from None
        finally:
            shutil.rmtree(aside.folder, ignore_errors=True)

    def restore(self, folder: Path) -> list[Path]:
        """Restore a backup and return the files written.

        The rows of the backup are added to an existing ledger, which keeps all its own rows,
        whichever of the two is older. A ledger that is missing gets its name when it holds them: an
        empty one beside the old secret would give every record its budget again.
        """
        saved = Home(folder)
        if not (saved.ledger_file.exists() and saved.secret_file.exists()):
            raise BadInput(
                f"{folder} holds no {saved.ledger_file.name} and {saved.secret_file.name}; "
                "accepted is a backup"
            )
        if self.secret_file.exists() and self.secret() != saved.secret():
            raise BadInput(
                f"{self.secret_file} is another secret than the backup's; accepted is the folder "
                "it was made of"
            )
        if self.ledger_file.exists():
            # Before anything is written: this ledger must be of the same secret, and no copy.
            Ledger(self.ledger_file).bind(saved.secret())
            Ledger(self.ledger_file).merge(saved.ledger_file, saved.secret())
        else:
            self._restore_ledger(saved)
        written = write_new(
            {self.folder / path.name: path.read_bytes() for path in saved.settings if path.exists()}
        )
        return [*written, self.ledger_file]

    def _restore_ledger(self, saved: "Home") -> None:
        """Write the rows of a backup into a new ledger, under its name only when all are there."""
        aside = self.folder / f".{self.ledger_file.name}.restored"
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            aside.unlink(missing_ok=True)
            ledger = Ledger(aside)
            ledger.merge(saved.ledger_file, saved.secret())
            ledger.bind(saved.secret())
            ledger.close()
            # Unlike a rename, a link never replaces an existing file.
            os.link(aside, self.ledger_file)
        except OSError as error:
            raise BadInput(f"{self.ledger_file} cannot be written: {error.strerror}") from None
        finally:
            aside.unlink(missing_ok=True)


def _node_keys() -> tuple[bytes, bytes]:
    """Make the private and public key, in OpenSSH format, that a Flower node logs in with."""
    key = ec.generate_private_key(ec.SECP384R1())
    ssh = serialization.Encoding.OpenSSH
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    return private, key.public_key().public_bytes(ssh, serialization.PublicFormat.OpenSSH) + b"\n"
