"""One name for all ways of writing an id.

What a record has spent is kept under its name, so a name must survive whatever happens to the file:
another format, another order, other number types, a new feature. Hence names are the ids that the
owner gives, never the content. Ids that differ only in how they are written are one: if two records
share a name their file is refused, while one record with two names would have two budgets.
"""

import re
import unicodedata
from decimal import Decimal
from typing import Any

from confide.protocol.errors import BadInput

WHY_ID = "what a record has spent is kept under its id, so each needs one"
MISSING = frozenset({"", "nan", "none", "null", "<na>"})
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
# How floats are printed; 12e45, without sign or point, could be a hexadecimal id.
PRINTED_FLOAT = re.compile(r".*(\.|[eE]\+).*")
# Up to here float64 holds every whole number.
EXACT = 2**53


def normal_id(value: Any, *, exact: int = EXACT) -> bytes:
    """The name of an id: 7, 7.0, "007" and full-width digits are one, and so are spellings of text.

    Text is in NFKC, without case and invisible characters. Floats name a record only below `exact`,
    the bound up to which their type holds every whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | bytes | None):
        raise BadInput(f"is of type {type(value).__name__}; accepted are whole numbers and text")
    if isinstance(value, float) and value == value:
        if not abs(value) < exact or value != int(value):
            raise BadInput(
                f"is the float {value}; accepted are whole numbers and text, and floats only if "
                f"whole and below {exact}"
            )
        value = int(value)
    text = value.decode() if isinstance(value, bytes) else "" if value is None else str(value)
    if not text.isascii() or not text.isprintable():
        text = unicodedata.normalize("NFKC", text)
        # All kinds of spaces and line ends become one space, invisible characters are dropped, and
        # every dash becomes a hyphen.
        kinds = ((c, unicodedata.category(c)) for c in " ".join(text.split()))
        text = "".join(
            "-" if kind == "Pd" or c == "\u2212" else c
            for c, kind in kinds
            if kind not in ("Cf", "Cc")
        )
    text = " ".join(text.split()).casefold()
    if text in MISSING:
        raise BadInput(f"is missing; {WHY_ID}")
    if NUMBER.fullmatch(text):
        number = Decimal(text)
        if number.copy_abs() < EXACT or text.lstrip("+-").isdigit():
            plain = f"{number:f}"
            text = (plain.rstrip("0").rstrip(".") if "." in plain else plain) if number else "0"
        elif PRINTED_FLOAT.fullmatch(text):
            raise BadInput(
                f"is {text}, written as a float; accepted are whole numbers in full, and text"
            )
    return text.encode()
