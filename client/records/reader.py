"""Reads a file of records, and refuses one whose ids, labels or features cannot be used."""

import csv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.records.ids import EXACT, WHY_ID, normal_id
from confide.client.records.records import Records
from confide.protocol.errors import BadInput
from confide.protocol.record_columns import READERS, Columns

Array = NDArray[Any]

ACCEPTED = (
    "accepted are .npz, .csv and .parquet with `id`, `label`, either probabilities `p0`, `p1`, ... "
    "or features, and `person` where one person has several records"
)


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


def _records(columns: Columns) -> Records:
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


def _ids(columns: Columns, which: str) -> tuple[bytes, ...]:
    values = columns.arrays[which]
    exact = 2 ** (np.finfo(values.dtype).nmant + 1) if values.dtype.kind == "f" else EXACT
    names = []
    for i, value in enumerate(values.tolist(), start=columns.first):
        try:
            names.append(normal_id(value, exact=exact))
        except BadInput as error:
            raise BadInput(f"{columns.row} {i}: its {which} {error}") from None
    return tuple(names)


def _check_different(names: tuple[bytes, ...], columns: Columns) -> None:
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
