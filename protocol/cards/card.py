"""The contract card: the request, the decision and why, the privacy spent, who can re-check it.

A card has a *formal* layer, from which `confide.protocol.cards.verify.card` decides everything
again without data; a *diagnostic* layer, which describes and proves nothing; and its *provenance*.
The signature covers all three. Values that depend on data and were not released privately are in
the auditor's view only.
"""

import hashlib
import json
import math
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from confide.protocol.errors import BadInput

FORMAT = "confide-card/2"
PUBLIC, AUDITOR = "public", "auditor"
# Clauses about the released threshold; each track has further clauses.
RANDOMNESS, INFORMATIVE = "randomness", "informative"
# What a searched configuration was selected by.
BY_INFLATION, BY_SIZE = "certified inflation", "measured size"
# Diagnostics computed from calibration records without noise; the others use other records.
AUDITOR_ONLY = ("width", "observed_inflation")
# Signatures cover this prefix too, so that a signature over a card is valid for nothing else.
_SIGNED = b"confide card v2\0"

# The field of Ed25519, and the y-coordinates of its points of small order (RFC 8032 gives the
# curve).
_FIELD = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDERS = (0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8)

Layer = dict[str, Any]


@dataclass(frozen=True)
class Card:
    """A card and, once signed, the key that vouches for it."""

    formal: Layer
    diagnostic: Layer
    provenance: Layer
    view: str = AUDITOR
    key: bytes = b""
    signature: bytes = b""

    def content(self) -> Layer:
        """Everything the signature covers."""
        layers = {
            "formal": self.formal,
            "diagnostic": self.diagnostic,
            "provenance": self.provenance,
        }
        return {"format": FORMAT, "view": self.view, **layers}

    @property
    def digest(self) -> bytes:
        """The SHA-256 of what the signature covers, which names the card."""
        return hashlib.sha256(canonical(self.content())).digest()

    def public(self) -> "Card":
        """Return the card without the values for auditors only, to be signed separately."""
        kept = {name: value for name, value in self.diagnostic.items() if name not in AUDITOR_ONLY}
        return replace(self, diagnostic=kept, view=PUBLIC, key=b"", signature=b"")

    def sign(self, key: Ed25519PrivateKey) -> "Card":
        """Return the card with a signature of this key over all of its layers."""
        signature = key.sign(_SIGNED + canonical(self.content()))
        return replace(self, key=key.public_key().public_bytes_raw(), signature=signature)

    @property
    def signature_holds(self) -> bool:
        """Whether the signature is that of the card's own key, over exactly this content."""
        if _of_small_order(self.key):
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(
                self.signature, _SIGNED + canonical(self.content())
            )
        except (InvalidSignature, ValueError):
            return False
        return True

    def to_json(self) -> str:
        """Return the card as it is published."""
        signed = {"key": self.key.hex(), "signature": self.signature.hex()}
        return json.dumps(self.content() | {"signed": signed}, indent=2, allow_nan=False) + "\n"


def strata_of(formal: Layer) -> Layer | None:
    """The parts of the records that a formal layer keeps apart; None if there are none."""
    found: Layer | None = formal.get("strata", formal.get("certificate", {}).get("strata"))
    return found


def uncovered(strata: Layer) -> list[str]:
    """The names of the parts that nothing is claimed of."""
    return [part["name"] for part in strata["parts"] if not part.get("covered", True)]


def named(parts: list[str]) -> str:
    """The names of some parts in words, the first twenty of them."""
    more = f" and {len(parts) - 20} more" if len(parts) > 20 else ""
    return f"{', '.join(parts[:20])}{more}"


def canonical(value: Any) -> bytes:
    """Serialise values so that equal values have one spelling.

    Keys are in order, without spaces; numbers are as Python prints them, and whole floats are
    written as integers.
    """
    return json.dumps(
        _plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True
    ).encode()


def _plain(value: Any) -> Any:
    """Write whole floats as integers: 4.0 and 4 are one number in JSON."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value


def _of_small_order(key: bytes) -> bool:
    """Whether a key is a point of small order, under which anybody can sign anything.

    These are the points of Edwards25519 of order 1, 2, 4, 8.
    """
    return (int.from_bytes(key, "little") & ((1 << 255) - 1)) % _FIELD in _SMALL_ORDERS


def card_schema() -> Layer:
    """Return the published JSON Schema of cards."""
    schema: Layer = json.loads(
        files("confide.protocol.cards").joinpath("card.schema.json").read_text()
    )
    return schema


def parse_card(text: str) -> Card:
    """Read a card from JSON of the published schema."""
    try:
        data = json.loads(
            text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_no_repeats
        )
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"not JSON: {str(error)[:200]}; accepted is a card of format {FORMAT}"
        ) from None
    if isinstance(data, dict) and data.get("format") == FORMAT and "signed" not in data:
        raise BadInput(
            "it is not signed, so nobody vouches for it; accepted is a card with the field `signed`"
        )
    _check_schema(data)
    key, signature = (bytes.fromhex(data["signed"][name]) for name in ("key", "signature"))
    return Card(
        data["formal"], data["diagnostic"], data["provenance"], data["view"], key, signature
    )


def read_card(path: Path) -> Card:
    """Read a card from a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}; accepted is a card as JSON") from None
    try:
        return parse_card(text)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _no_repeats(pairs: list[tuple[str, Any]]) -> Layer:
    """Refuse a repeated name: a reader and a verifier might use different values of it."""
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return dict(pairs)


def _check_schema(data: Any) -> None:
    # Every command would wait for jsonschema, and few read a card.
    from jsonschema.exceptions import best_match

    problem = best_match(_validator().iter_errors(data))
    if problem is not None:
        place = "/".join(map(str, problem.absolute_path)) or "the card"
        raise BadInput(
            f"{place}: {problem.message[:200]}; `confide-card schema` prints what is accepted"
        )


@cache
def _validator() -> Any:
    """JSON Schema's validator, for which 2.0 is no integer: it would be no index."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    whole = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return extend(Draft202012Validator, type_checker=whole)(card_schema())
