"""Reads a file of records, and refuses one whose ids, labels or features cannot be used."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from confide.client.records.ids import EXACT, WHY_ID, normal_id
from confide.client.records.records import Records
from confide.protocol.errors import BadInput
from confide.protocol.methods.partition import spelled
from confide.protocol.record_files.record_columns import (
    Columns,
    check_features,
    read_columns,
    truths,
)

ACCEPTED = (
    "accepted are .npz, .csv and .parquet with `id`; `label` and probabilities `p0`, `p1`, ..., or "
    "`target` and `prediction` (with `scale`) or `lower` and `upper`; or features instead of a "
    "model's results; or several true labels (`true0`, `true1`, ... of 0 and 1), or losses "
    "(`loss1`, `loss2`, ...); and `person` where one person has several records"
)


def read_records(path: Path, *, public: Collection[str] = ()) -> Records:
    """Read a file of records; columns named `public` are no features, and may leave in clear."""
    columns = read_columns(path, accepted=ACCEPTED, beside=public)
    try:
        return _records(columns, public)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path} cannot be read: {error}; {ACCEPTED}") from None


def _records(columns: Columns, public: Collection[str]) -> Records:
    arrays = columns.arrays
    if "id" not in arrays:
        raise BadInput(f"it has columns {sorted(arrays)}; missing: id ({WHY_ID})")
    if any(array.ndim == 0 for array in arrays.values()):
        raise BadInput("it has single values where a value a record is accepted")
    truth, results, named = truths(arrays)
    features = arrays.get("features")
    if features is not None:
        check_features(features)
    names = _ids(columns, "id")
    _check_different(names, columns)
    persons = _ids(columns, "person") if "person" in arrays else None
    groups = {name: spelled(arrays[name].tolist()) for name in public if name in arrays}
    return Records(names, results, truth, None, features, persons, named, groups)


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
