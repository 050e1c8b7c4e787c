"""The columns of a table of records, csv or parquet, as arrays of numbers."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, count, takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput

Array = NDArray[Any]

# Columns of a model's results for numbers that count as such only together.
PREDICTED = (("prediction",), ("prediction", "scale"), ("lower", "upper"))
# Arrays of what was observed whose rows tables hold as columns true0, true1, ... and loss1, ...
TRUE_LABELS, LOSSES = "true_labels", "losses"
_ROWS = {TRUE_LABELS: ("true", 0), LOSSES: ("loss", 1)}


class TextColumn(BadInput):
    """A column holds text where numbers are wanted."""


class Named(NamedTuple):
    """Columns that are returned by name: those that a file must have, and those that it may have.

    Of a table's other columns those are read whose name matches `only`.
    """

    needed: tuple[str, ...]
    beside: tuple[str, ...] = ()
    only: str = ".*"


def check_named(named: Named, columns: Mapping[str, Any]) -> None:
    """Refuse a file without the columns that it needs."""
    missing = [name for name in named.needed if name not in columns]
    if missing:
        raise BadInput(f"it has columns {sorted(columns)}; missing: {', '.join(missing)}")


def table_arrays(
    columns: Mapping[str, Sequence[Any] | Array], named: Named
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Columns `id`, `person`, truths, predictions, named ones; others as one array; those ignored.

    Predictions of numbers have the names in `PREDICTED`; in a file that has labels and no targets,
    these are features like others. The others are probabilities if they are named p0, p1, ..., else
    features.
    """
    check_named(named, columns)
    single: dict[str, Array] = {
        name: np.asarray(columns[name])
        for name in ("id", "person", *named.needed, *named.beside)
        if name in columns
    }
    if "label" in columns:
        single["label"] = np.asarray(columns["label"]).astype(np.float64)
    numbers = {"target"} & set(columns)
    if numbers or "label" not in columns:
        numbers |= {name for group in PREDICTED if set(group) <= set(columns) for name in group}
    single |= {name: _numbers(name, _present(columns[name])) for name in columns if name in numbers}
    rows = {} if {"label", "target"} & set(columns) else _numbered(columns)
    for what, names in rows.items():
        single[what] = np.array([_numbers(name, columns[name]) for name in names]).T
    taken = {*single, *chain.from_iterable(rows.values())}
    left = [name for name in columns if name not in taken]
    others = [name for name in left if re.fullmatch(named.only, name)]
    ignored = tuple(name for name in left if name not in others)
    return single | _together(columns, others), ignored


def _together(columns: Mapping[str, Sequence[Any] | Array], others: list[str]) -> dict[str, Array]:
    """These columns as one array: probabilities if they are named so, else features."""
    if not others:
        return {}
    probabilities = [f"p{i}" for i in range(len(others))]
    kind, chosen = (
        ("probs", probabilities) if set(others) == set(probabilities) else ("features", others)
    )
    values = np.array([_numbers(name, columns[name]) for name in chosen])
    if values.ndim != 2:
        raise BadInput("it has columns of lists; accepted is a number a record and column")
    return {kind: values.T}


def _numbered(columns: Collection[str]) -> dict[str, list[str]]:
    """The columns of true labels and of losses, numbered without a gap."""
    found = {
        what: list(takewhile(columns.__contains__, (f"{prefix}{i}" for i in count(first))))
        for what, (prefix, first) in _ROWS.items()
    }
    return {what: names for what, names in found.items() if names}


def _numbers(name: str, values: Sequence[Any] | Array) -> Array:
    try:
        return np.array(values, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise TextColumn(f"column {name!r} holds something else than numbers: {error}") from None


def _present(values: Sequence[Any] | Array) -> Array:
    """Values of records; one that is missing is NaN."""
    found = np.asarray(values)
    return np.where(np.char.strip(found) == "", "nan", found) if found.dtype.kind == "U" else found
