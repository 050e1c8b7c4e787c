"""The file by which a shuffler is named in plans: its key, and the authority of its certificate."""

import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.protocol.errors import BadInput
from confide.protocol.sealing import sealing_key
from confide.protocol.shuffling import Shuffling

NAMES = ("key", "authority")
# The fewest reports of a round, unless a campaign says another number.
USUAL_CROWD = 1_000


def shuffler_file(*, key: bytes, authority: bytes) -> bytes:
    """Return the content of the file, which is public."""
    return (json.dumps({"key": key.hex(), "authority": authority.hex()}, indent=1) + "\n").encode()


def with_shuffler(own: dict[str, Any], signer: Ed25519PrivateKey) -> dict[str, Any]:
    """Return the settings with the shuffler that their file names, if they name one.

    Its reports are sealed to the key that belongs to the signer of the plan.
    """
    path = str(own.get("shuffler", ""))
    if not path:
        if "crowd" in own:
            raise BadInput(
                f"crowd is {own['crowd']} and no shuffler is given; accepted is the file "
                "shuffler.json that `confide-shuffler init` wrote"
            )
        return own
    named = _read(Path(path))
    if named["key"] == signer.public_key().public_bytes_raw():
        raise BadInput(
            f"{path} names the key that signs the plan; accepted is the key of another party"
        )
    recipient = sealing_key(signer).public_key().public_bytes_raw()
    crowd = int(own.get("crowd", USUAL_CROWD))
    return own | {"shuffling": Shuffling(**named, recipient=recipient, crowd=crowd)}


def _read(path: Path) -> dict[str, bytes]:
    accepted = "accepted is the file shuffler.json that `confide-shuffler init` wrote"
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}; {accepted}") from None
    if not isinstance(values, dict) or set(values) != {*NAMES}:
        raise BadInput(f"{path} does not hold {' and '.join(NAMES)} alone; {accepted}")
    try:
        return {name: bytes.fromhex(values[name]) for name in NAMES}
    except (TypeError, ValueError):
        raise BadInput(f"{path} holds values that are not hexadecimal; {accepted}") from None
