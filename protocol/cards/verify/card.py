"""Deciding a card again from its formal layer alone, with code that shares nothing with the code
that wrote it.

Every clause is recomputed and compared with what the card says; those that differ are named. What
cannot be recomputed without data (that the counts were as the card says, that owners ran the
channel it names) is what the signature vouches for.
"""

from collections.abc import Callable, Iterator

from confide.protocol.cards.card import AUDITOR, AUDITOR_ONLY, Card, Layer
from confide.protocol.cards.verify import bits, labels
from confide.protocol.cards.verify.central import central
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.cards.verify.full_data import full_data
from confide.protocol.cards.verify.local import local
from confide.protocol.cards.verify.plan import planned
from confide.protocol.errors import ConfideError

# Importing them registers their rules.
BUILT_IN = (bits, labels)
TRACKS: dict[str, Callable[[Layer], Iterator[Finding]]] = {
    "central": central,
    "local": local,
    "full-data": full_data,
}


def verify(card: Card, *, key: bytes | None = None, unsigned: bool = False) -> list[Finding]:
    """Every clause of a card, recomputed; a key demands that signer. `unsigned` excuses a card that
    has no signature at all."""
    findings = []
    if card.key or card.signature or not unsigned:
        findings.append(
            Finding("signature", card.signature_holds, f"key {card.key.hex() or 'none'}")
        )
    if key is not None:
        findings.append(Finding("signer", card.key == key, f"expected {key.hex()}"))
    private = set(AUDITOR_ONLY) & set(card.diagnostic)
    shown = card.view == AUDITOR or not private
    findings.append(Finding("view", shown, "data-dependent diagnostics are for the auditor only"))
    try:
        findings += TRACKS[card.formal["track"]](card.formal)
        findings += planned(card)
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        MemoryError,
        ConfideError,
    ) as error:
        # Numbers that fit the schema and not each other: whatever they do to the arithmetic, the
        # card does not hold.
        findings.append(
            Finding(
                "recomputable",
                False,
                f"the formal layer contradicts itself ({type(error).__name__})",
            )
        )
    return findings
