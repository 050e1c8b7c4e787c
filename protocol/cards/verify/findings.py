"""What verifying a card finds: a clause, whether it holds, and what was recomputed."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

# Numbers that were rounded to the safe side by both may differ by this much, relatively.
CLOSE = 1e-6


@dataclass(frozen=True)
class Finding:
    """A clause, whether it holds, and what was recomputed."""

    clause: str
    holds: bool
    detail: str = ""


def same(clause: str, found: Any, expected: Any) -> Finding:
    """A number or word of the card against the one recomputed, to the last bit: nothing here needs
    rounding."""
    equal = found == expected and isinstance(found, bool) == isinstance(expected, bool)
    return Finding(clause, equal, f"the card says {found}, recomputed {expected}")


def number(value: float) -> Fraction:
    """The number that a float prints as."""
    return Fraction(repr(value))
