"""The errors of the project.

    ConfideError
    ├── BadInput  something handed in is not acceptable: the message says what was found,
    │             what is accepted, and where
    └── Refused   something that came over the wire is not answered: a code and nothing else

A rejected report is data, not an error. Command lines answer `BadInput` with one line and exit code
2. `Refused` carries no text, because what a data owner raises may be forwarded to the other side
word for word.
"""

import math
from collections.abc import Iterable
from typing import TypeVar

Kind = TypeVar("Kind")


class ConfideError(Exception):
    """Root of every error raised on purpose."""


class BadInput(ConfideError, ValueError):
    """A value, file or argument that cannot be used as given."""


class Refused(ConfideError):
    """A plan, query or batch that is refused, with its wire code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def check_probability(name: str, value: float) -> None:
    """Accept a number strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise BadInput(f"{name} is {value!r}; it must lie strictly between 0 and 1")


def check_epsilon(epsilon: float) -> None:
    """Accept a privacy parameter whose channels can be expressed in 64-bit integers."""
    if not (math.isfinite(epsilon) and 1e-6 <= epsilon <= 40.0):
        raise BadInput(f"epsilon is {epsilon!r}; it must be a finite number from 1e-6 to 40")


def check_delta(delta: float) -> None:
    """Accept the delta of (epsilon, delta)-differential privacy, which may be 0."""
    # Far below any meaningful delta, and far above the values at which floats lose digits.
    if not (delta == 0 or 1e-100 <= delta < 1):
        raise BadInput(f"privacy_delta is {delta}; it must be 0, or from 1e-100 to below 1")


def check_choice(what: str, value: str, accepted: Iterable[str]) -> None:
    """Accept one of the given names."""
    if value not in accepted:
        raise BadInput(f"{what} is {value!r}; accepted: {', '.join(accepted)}")


def narrowed(value: object, kind: type[Kind], *, found: str, accepted: str) -> Kind:
    """Return a value as one of a class; refuse others, by what was found and what is accepted."""
    if not isinstance(value, kind):
        raise BadInput(f"{found}; accepted {accepted}")
    return value
