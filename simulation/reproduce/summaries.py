"""Rows of trials, averaged."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]


def averaged(rows: Sequence[Row], names: Iterable[str]) -> Row:
    """Mean and standard deviation of some columns over trials; None where no trial has a number.

    Of flags it is the share of trials that have them. One trial has no deviation.
    """
    shown: Row = {}
    for name in names:
        found = [row[name] for row in rows if row[name] is not None]
        shown[name] = float(np.mean(found)) if found else None
        if len(found) > 1 and not all(isinstance(value, bool) for value in found):
            shown[f"{name} sd"] = float(np.std(found))
    return shown


def spread(values: Iterable[float], digits: int = 3) -> str:
    """The least and the largest of some numbers, in words."""
    found = list(values)
    return f"{min(found):.{digits}f} to {max(found):.{digits}f}"
