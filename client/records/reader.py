"""The owner's records, read from npz, csv or parquet.

What a record has spent is kept under its name, so a name must survive whatever happens to the file:
another format, another order, other number types, a new feature. Hence names are the ids that the
owner gives, never the content. Ids that differ only in how they are written are one: merging two
records refuses a file, while parting one record would renew its budget.
"""

import csv
import re
import unicodedata
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.probabilities import check_probabilities

Array = NDArray[Any]

ACCEPTED = (
    "accepted are .npz, .csv and .parquet with `id`, `label`, either probabilities `p0`, `p1`, ... "
    "or features, "
    "and `person` where one person has several records"
)
WHY_ID = "what a record has spent is kept under its id, so each needs one"
MISSING = frozenset({"", "nan", "none", "null", "<na>"})
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
# How floats are printed; 12e45 without sign or point is also how many hexadecimal ids look.
PRINTED_FLOAT = re.compile(r".*(\.|[eE]\+).*")
EXACT = 2**53


@dataclass(frozen=True)
class Records:
    """Names and labels, with probabilities computed beforehand or features to score. Labels are
    whole numbers of any range.

    `model` is the digest of the model behind the probabilities where it is known; `persons` says
    whose each record is.
    """

    names: tuple[bytes, ...]
    probs: Array | None
    labels: Array
    model: bytes | None = None
    features: Array | None = None
    persons: tuple[bytes, ...] | None = None

    def __post_init__(self) -> None:
        if self.probs is not None:
            check_probabilities(self.probs)
        if self.labels.ndim != 1 or self.labels.dtype.kind not in "iu":
            raise BadInput(
                f"labels have shape {self.labels.shape} and type {self.labels.dtype}; accepted is "
                "an integer a record"
            )
        n = len(self.labels)
        for what, rows in {
            "probabilities": self.probs,
            "features": self.features,
            "persons": self.persons,
        }.items():
            if rows is not None and len(rows) != n:
                raise BadInput(
                    f"{n} labels for {len(rows)} rows of {what}; accepted is a label a row"
                )
        if len(self.names) != n or len(set(self.names)) != n:
            raise BadInput(
                f"{len(set(self.names))} different names for {n} records; each record needs its own"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def scored(self) -> Array:
        """The probabilities that the records came with."""
        if self.probs is None:
            raise BadInput(
                "the records hold features and no probabilities; name the model that scores them"
            )
        return self.probs


@dataclass(frozen=True)
class _Columns:
    """A file's columns; `first` is what its reader calls the first row, for messages."""

    arrays: dict[str, Array]
    row: str
    first: int


def read_records(path: Path) -> Records:
    """Read a file of records."""
    if path.suffix not in READERS:
        raise BadInput(f"{path} ends in {path.suffix or 'nothing'!r}; {ACCEPTED}")
    if not path.exists():
        raise BadInput(f"{path} does not exist; {ACCEPTED}")
    try:
        return _records(READERS[path.suffix](path))
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        TypeError,
        zipfile.BadZipFile,
        csv.Error,
    ) as error:
        raise BadInput(f"{path} cannot be read: {error}; {ACCEPTED}") from None


def normal_id(value: Any, *, exact: int = EXACT) -> bytes:
    """One name for all ways of writing an id: 7, 7.0, "007" and full-width digits; text in NFKC,
    without case or the invisible.

    Floats name a record only below `exact`, the bound up to which their type holds every whole
    number.
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
        # Spaces of all kinds, among them ends of lines, part words; what is invisible does not;
        # every dash is a hyphen.
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


def _records(columns: _Columns) -> Records:
    arrays = columns.arrays
    if "id" not in arrays:
        raise BadInput(f"it has columns {sorted(arrays)}; missing: id ({WHY_ID})")
    if "label" not in arrays:
        raise BadInput(f"it has columns {sorted(arrays)}; missing: label")
    probs, features = arrays.get("probs"), arrays.get("features")
    if probs is None and features is None:
        raise BadInput(f"it has columns {sorted(arrays)}; missing: probabilities or features")
    if any(array.ndim == 0 for array in arrays.values()):
        raise BadInput("it has single values where a value a record is accepted")
    if features is not None and not (features.dtype.kind in "fiub" and np.isfinite(features).all()):
        raise BadInput(
            f"features are of type {features.dtype} or hold values that are not finite; accepted "
            "are finite numbers"
        )
    names = _ids(columns, "id")
    _check_different(names, columns)
    persons = _ids(columns, "person") if "person" in arrays else None
    return Records(names, probs, _whole(arrays["label"]), None, features, persons)


def _ids(columns: _Columns, which: str) -> tuple[bytes, ...]:
    values = columns.arrays[which]
    exact = 2 ** (np.finfo(values.dtype).nmant + 1) if values.dtype.kind == "f" else EXACT
    names = []
    for i, value in enumerate(values.tolist(), start=columns.first):
        try:
            names.append(normal_id(value, exact=exact))
        except BadInput as error:
            raise BadInput(f"{columns.row} {i}: its {which} {error}") from None
    return tuple(names)


def _check_different(names: tuple[bytes, ...], columns: _Columns) -> None:
    seen: dict[bytes, int] = {}
    for i, name in enumerate(names):
        before = seen.setdefault(name, i)
        if before != i:
            written = columns.arrays["id"].tolist()
            raise BadInput(
                f"{columns.row}s {before + columns.first} and {i + columns.first} have the same id "
                f"({written[before]!r} and {written[i]!r}); each record needs its own"
            )


def _whole(labels: Array) -> Array:
    """Labels as 64-bit integers, also where a file gave them as floats."""
    if labels.dtype.kind not in "fiub":
        raise BadInput(f"labels are of type {labels.dtype}; accepted are whole numbers")
    if labels.dtype.kind == "f" and not (
        np.isfinite(labels).all() and np.array_equal(labels, np.rint(labels))
    ):
        raise BadInput("labels are not whole numbers")
    if labels.size and not -(2**63) <= int(labels.min()) <= int(labels.max()) < 2**63:
        raise BadInput(
            f"labels run from {labels.min()} to {labels.max()}; accepted are 64-bit integers"
        )
    return labels.astype(np.int64)


def _npz(path: Path) -> _Columns:
    renamed = {"labels": "label", "ids": "id", "persons": "person"}
    with np.load(path, allow_pickle=False) as archive:
        found = {name: archive[name] for name in archive}
    _check_once([renamed.get(name, name) for name in found])
    return _Columns({renamed.get(name, name): array for name, array in found.items()}, "row", 1)


def _csv(path: Path) -> _Columns:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    if len(rows) < 2:
        raise BadInput("it has no header or no rows")
    header, body = [name.strip() for name in rows[0]], rows[1:]
    uneven = next((i for i, row in enumerate(body, start=2) if len(row) != len(header)), None)
    if uneven is not None:
        raise BadInput(
            f"line {uneven} has another number of fields than the header's {len(header)}"
        )
    _check_once(header)
    return _Columns(_table(dict(zip(header, zip(*body, strict=True), strict=True))), "line", 2)


def _parquet(path: Path) -> _Columns:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise BadInput(
            "reading parquet needs the package pyarrow; install confide[client]"
        ) from None
    table = pyarrow.parquet.read_table(path)
    _check_once(table.column_names)
    columns = {name: table.column(name) for name in table.column_names}
    floats = {
        name: column.type.to_pandas_dtype()
        for name, column in columns.items()
        if pyarrow.types.is_floating(column.type)
    }
    # The type of a float says up to where it holds every whole number.
    read = {
        name: np.array(column.to_pylist(), dtype=floats.get(name, object))
        for name, column in columns.items()
    }
    return _Columns(_table(read), "row", 1)


def _check_once(names: list[str]) -> None:
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise BadInput(f"it has the column {twice!r} twice")


def _table(columns: Mapping[str, Sequence[Any] | Array]) -> dict[str, Array]:
    """Columns `id`, `person`, `label`, and the others together: as probabilities if they are p0,
    p1, ..., else as features."""
    named: dict[str, Array] = {
        name: np.asarray(columns[name]) for name in ("id", "person") if name in columns
    }
    if "label" in columns:
        named["label"] = np.asarray(columns["label"]).astype(np.float64)
    others = [name for name in columns if name not in named]
    if not others:
        return named
    probabilities = [f"p{i}" for i in range(len(others))]
    kind, chosen = (
        ("probs", probabilities) if set(others) == set(probabilities) else ("features", others)
    )
    values = np.array([columns[name] for name in chosen], dtype=np.float64)
    if values.ndim != 2:
        raise BadInput("it has columns of lists; accepted is a number a record and column")
    return named | {kind: values.T}


READERS: dict[str, Callable[[Path], _Columns]] = {".npz": _npz, ".csv": _csv, ".parquet": _parquet}
