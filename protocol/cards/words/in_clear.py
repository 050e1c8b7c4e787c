"""What left owners in clear beside private reports or counts, which no epsilon of a card covers."""

from confide.protocol.cards.card import Layer
from confide.protocol.errors import ConfideError
from confide.protocol.methods.base import Terms
from confide.protocol.plan import Plan


def in_clear(formal: Layer) -> tuple[str, ...]:
    """Name what left in clear, by the terms of the plan that owners answered; nothing if no plan.

    Terms say it of themselves, as the owner's policy asks them, so this holds for methods that were
    registered from outside, too.
    """
    text = formal.get("plan")
    if text is None:
        return ()
    try:
        terms = Plan.from_bytes(bytes.fromhex(text)).terms
    except (ArithmeticError, LookupError, TypeError, ValueError, ConfideError):
        # Such a card does not verify, and may still be shown.
        return ("whatever its plan asks for, which cannot be read",)
    return _of_records(terms) + _of_groups(terms)


def _of_records(terms: Terms) -> tuple[str, ...]:
    if terms.sent_features:
        return (f"ALL {terms.sent_features} FEATURES OF EVERY RECORD",)
    if terms.shows_probabilities:
        return ("the model's probabilities for every record",)
    return ()


def _of_groups(terms: Terms) -> tuple[str, ...]:
    """The group of a record, with its report; of owners that count, how many are in each."""
    if not terms.group_column:
        return ()
    if terms.rounds:
        return (f"how many records each owner has of every {terms.group_column}",)
    return (f"the {terms.group_column} of every record",)


def beside_epsilon(formal: Layer) -> str:
    """Say to what the epsilon of a card does not apply; empty if nothing left in clear."""
    found = in_clear(formal)
    return f" That does not protect what left owners IN CLEAR: {'; '.join(found)}." if found else ""


def not_protected(formal: Layer) -> list[str]:
    """Say the same among what a card does not promise."""
    return [f"Any privacy of what left in clear: {one}." for one in in_clear(formal)]
