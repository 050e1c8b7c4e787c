"""What was checked of a card, and whose key signed it, in words."""

from confide.protocol.cards.card import Card
from confide.protocol.cards.verify.findings import Finding

# What KEY stands for in the line of code that predicts with a card.
KEY_IS = (
    "KEY is the aggregator's public key, 64 hexadecimal digits: take it from the aggregator, not "
    "from this card"
)


def checked(card: Card, findings: list[Finding], *, own_key: bool) -> str:
    """Say what was checked, and whether the signer was compared with a known key.

    With `own_key` that was the key of the server that shows the card, which proves nothing to a
    reader who does not know the server.
    """
    held = {finding.clause: finding.holds for finding in findings}
    if not findings:
        return "Nothing: run `confide-card verify`."
    clauses = f"{sum(one.holds for one in findings):,} of {len(findings):,} clauses hold."
    if not card.key:
        return f"{clauses} NOBODY SIGNED IT."
    if not held.get("signature", False):
        return f"{clauses} THE SIGNATURE DOES NOT HOLD."
    key = short_key(card.key)
    compare = "compare it with the one that the aggregator publishes: anybody can"
    if held.get("signer") and own_key:
        return f"{clauses} Signed by {key}, the key of this server; {compare} run a server."
    if held.get("signer"):
        return f"{clauses} Signed by {key}, the key that was asked for."
    if "signer" in held:
        return f"{clauses} Signed by {key}, WHICH IS NOT THE KEY THAT WAS ASKED FOR."
    return f"{clauses} Signed by {key}, a key that was compared with none; {compare} sign."


def short_key(key: bytes) -> str:
    """Enough of a key to recognise it; the fields of the card have all of it."""
    return f"{key.hex()[:4]}...{key.hex()[-4:]}"
