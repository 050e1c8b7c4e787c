"""The result of verifying one clause of a card."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

# The relative difference allowed between numbers that both sides rounded to the safe side.
CLOSE = 1e-6


@dataclass(frozen=True)
class Finding:
    """A clause, whether it holds, and the recomputed value."""

    clause: str
    holds: bool
    detail: str = ""


def failures(findings: Iterable[Finding]) -> list[str]:
    """Return a line for each clause that does not hold."""
    return [f"FAILS  {found.clause}: {found.detail}" for found in findings if not found.holds]


def same(clause: str, found: Any, expected: Any) -> Finding:
    """Compare a value of the card with the recomputed one.

    Numbers must agree to the last bit, because none of them needs rounding.
    """
    equal = found == expected and isinstance(found, bool) == isinstance(expected, bool)
    return Finding(clause, equal, f"the card says {found}, recomputed {expected}")


def number(value: float) -> Fraction:
    """Return the number that a float prints as."""
    return Fraction(repr(value))
