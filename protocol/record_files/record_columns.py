"""The columns of npz, csv and parquet files, and the checks that every reader of them makes."""

import csv
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.record_files.record_tables import (
    LOSSES,
    PREDICTED,
    TRUE_LABELS,
    Named,
    check_named,
    table_arrays,
)
from confide.protocol.scores.task import TASKS, Task

Array = NDArray[Any]

# The columns of what was observed, of which a file has one.
TRUTHS = tuple(task.column for task in TASKS.values())


@dataclass(frozen=True)
class Columns:
    """A file's columns, and how messages name its rows: `row` and the number of the first.

    `ignored` are columns of a table that nothing was read from.
    """

    arrays: dict[str, Array]
    row: str
    first: int
    ignored: tuple[str, ...] = ()


def read_columns(
    path: Path,
    *,
    accepted: str,
    named: tuple[str, ...] = (),
    beside: Collection[str] = (),
    only: str = ".*",
) -> Columns:
    """Read a file; columns in `named` are returned by name and are not features.

    So do columns `beside` the others, which a file need not have. Of the others those are read
    whose name matches `only`.
    """
    if path.suffix not in READERS:
        raise BadInput(f"{path} ends in {path.suffix or 'nothing'!r}; {accepted}")
    if not path.exists():
        raise BadInput(f"{path} does not exist; {accepted}")
    try:
        return READERS[path.suffix](path, Named(named, tuple(beside), only))
    except BadInput as error:
        raise type(error)(f"{path}: {error}") from None
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        TypeError,
        zipfile.BadZipFile,
        csv.Error,
    ) as error:
        raise BadInput(f"{path} cannot be read: {error}; {accepted}") from None


def check_npz(path: Path) -> None:
    """Raise a ValueError if a file is no npz file: numpy's would advise to unpickle it."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no npz file")


def whole_labels(labels: Array) -> Array:
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


def truths(arrays: Mapping[str, Array]) -> tuple[Array, Array | None, tuple[str, ...]]:
    """Return labels or targets, a model's results if there are any, and their columns' names.

    Only results of targets have named columns. Without results there must be features.
    """
    columns = sorted(arrays)
    given = [name for name in TRUTHS if name in arrays]
    if len(given) != 1:
        which = f"together: {', '.join(given)}" if given else f"missing: {' or '.join(TRUTHS[:2])}"
        raise BadInput(f"it has columns {columns}; {which}; accepted is one of {', '.join(TRUTHS)}")
    names: tuple[str, ...] = ()
    if given == [LOSSES]:
        found = losses(arrays[LOSSES])
        return found, np.empty((len(found), 0), dtype=np.float32), names
    if given == [TRUE_LABELS]:
        truth, results, what = flags(arrays[TRUE_LABELS]), arrays.get("probs"), "probabilities"
    elif "label" in arrays:
        truth, results, what = whole_labels(arrays["label"]), arrays.get("probs"), "probabilities"
    else:
        truth = targets(arrays["target"])
        results, names = predicted(arrays, len(truth))
        what = "prediction, or lower and upper,"
    if results is None and "features" not in arrays:
        raise BadInput(f"it has columns {columns}; missing: {what} or features")
    return truth, results, names


def observed(task: Task, arrays: Mapping[str, Array]) -> Array | None:
    """Return what was observed for a task, or None if the file does not have it."""
    return _TRUTH[task.column](arrays[task.column]) if task.column in arrays else None


def flags(values: Array) -> Array:
    """Return rows of 0 and 1 as booleans: which labels of a record are true."""
    found = _rows(values, "fiub", "true_labels")
    if not np.isin(found, (0, 1)).all():
        raise BadInput("true_labels hold something else than 0 and 1; accepted is one a label")
    return found.astype(np.bool_)


def losses(values: Array) -> Array:
    """Return rows of losses as they are."""
    return _rows(values, "fiub", "losses").astype(np.float64)


def _rows(values: Array, kinds: str, what: str) -> Array:
    if values.ndim != 2 or values.dtype.kind not in kinds:
        raise BadInput(
            f"{what} have shape {values.shape} and type {values.dtype}; accepted is a row of "
            "numbers a record"
        )
    return values


def targets(values: Array) -> Array:
    """Targets as (n,) float64, also those that are no finite numbers: these are never covered."""
    if values.dtype.kind not in "fiub":
        raise BadInput(f"targets are of type {values.dtype}; accepted are numbers")
    found = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if found.ndim != 1:
        raise BadInput(f"targets have shape {values.shape}; accepted is a number a record")
    return found.astype(np.float64)


def predicted(arrays: Mapping[str, Array], n: int) -> tuple[Array | None, tuple[str, ...]]:
    """Return a model's results for n targets as (n, columns), and the names of their columns."""
    names = tuple(
        dict.fromkeys(name for group in PREDICTED if set(group) <= set(arrays) for name in group)
    )
    for name in names:
        if arrays[name].dtype.kind not in "fiub" or arrays[name].size != n:
            raise BadInput(
                f"column {name!r} has type {arrays[name].dtype} and shape {arrays[name].shape} for "
                f"{n} targets; accepted is a number a target"
            )
    if not names:
        return None, ()
    return np.stack([arrays[name].reshape(n).astype(np.float64) for name in names], axis=1), names


def check_features(features: Array) -> None:
    """Refuse features that are not finite numbers."""
    if not (features.dtype.kind in "fiub" and np.isfinite(features).all()):
        raise BadInput(
            f"features are of type {features.dtype} or hold values that are not finite; accepted "
            "are finite numbers"
        )


def _npz(path: Path, named: Named) -> Columns:
    renamed = {
        "labels": "label",
        "ids": "id",
        "persons": "person",
        "targets": "target",
        "predictions": "prediction",
        "scales": "scale",
    }
    check_npz(path)
    with np.load(path, allow_pickle=False) as archive:
        found = {name: archive[name] for name in archive}
    _check_once([renamed.get(name, name) for name in found])
    check_named(named, found)
    return Columns({renamed.get(name, name): array for name, array in found.items()}, "row", 1)


def _csv(path: Path, named: Named) -> Columns:
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
    columns = dict(zip(header, zip(*body, strict=True), strict=True))
    arrays, ignored = table_arrays(columns, named)
    return Columns(arrays, "line", 2, ignored)


def _parquet(path: Path, named: Named) -> Columns:
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
    arrays, ignored = table_arrays(read, named)
    return Columns(arrays, "row", 1, ignored)


def _check_once(names: list[str]) -> None:
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise BadInput(f"it has the column {twice!r} twice")


# How the column of each task is read.
_TRUTH = {"label": whole_labels, "target": targets, TRUE_LABELS: flags, LOSSES: losses}
READERS: dict[str, Callable[[Path, Named], Columns]] = {
    ".npz": _npz,
    ".csv": _csv,
    ".parquet": _parquet,
}
