"""Verify a card from its formal layer alone, without the code that wrote it.

Every clause is recomputed and compared with the card; those that differ are named. The signature
vouches for the facts that cannot be recomputed without data: that the counts were as the card says,
and that owners ran the channel it names.
"""

from confide.protocol.cards.card import AUDITOR, AUDITOR_ONLY, Card
from confide.protocol.cards.verify.counts.evaluated import evaluated
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.cards.verify.local import bits, labels, pairs
from confide.protocol.cards.verify.plan import planned
from confide.protocol.cards.verify.tracks import central, full_data, local, monitor
from confide.protocol.cards.verify.tracks.base import TRACK_RULES
from confide.protocol.errors import ConfideError

# Imported because they register their rules: of methods, and of tracks.
BUILT_IN = (bits, labels, pairs, local, central, full_data, monitor)


def verify(card: Card, *, key: bytes | None = None, unsigned: bool = False) -> list[Finding]:
    """Recompute every clause of a card.

    With a `key`, the card must be signed by it. `unsigned` excuses a card that has no signature at
    all.
    """
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
        findings += TRACK_RULES[card.formal["track"]].decide(card.formal)
        findings += planned(card)
        findings += evaluated(card)
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        MemoryError,
        ConfideError,
    ) as error:
        # The numbers fit the schema but contradict each other: any error that they cause means that
        # the card does not hold.
        findings.append(
            Finding(
                "recomputable",
                False,
                f"the formal layer contradicts itself ({type(error).__name__})",
            )
        )
    return findings
