"""The owner's records: read from npz, csv or parquet, scored by a model or with probabilities computed beforehand.

A record keeps one name over all campaigns, so that what it has spent adds up: the `id` column if the file has one, else its
features and label (and a count for rows that are equal).
"""

import csv
import hashlib
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import BadInput
from protocol.scores import check_labels, check_probabilities

Array = NDArray[Any]
Model = Callable[[Array], Array]

ACCEPTED = "accepted are .npz, .csv and .parquet with `label` and either probabilities `p0`, `p1`, ... or features"


@dataclass(frozen=True)
class Records:
    """Names, class probabilities and labels, with the digest of the model behind the probabilities where it is known.

    Features are kept for training. Records that have them and no model yet have no probabilities.
    """

    names: tuple[bytes, ...]
    probs: Array | None
    labels: Array
    model: bytes | None = None
    features: Array | None = None

    def __post_init__(self) -> None:
        if self.probs is not None:
            check_probabilities(self.probs)
            check_labels(self.labels, n=len(self.probs), k=self.probs.shape[1])
        elif len(self.labels) and self.labels.min() < 0:
            raise BadInput(f"a label is {self.labels.min()}; accepted are whole numbers from 0")
        if len(set(self.names)) != len(self.labels):
            raise BadInput(f"{len(set(self.names))} different names for {len(self.labels)} records; each record needs its own")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def scored(self) -> Array:
        """The probabilities; records without any cannot be scored."""
        if self.probs is None:
            raise BadInput("the records hold features and no probabilities; name the model that scores them")
        return self.probs


def read_records(path: Path, *, model: Path | None = None) -> Records:
    """Read a file of records and score them where it holds features."""
    readers = {".npz": _npz, ".csv": _csv, ".parquet": _parquet}
    if path.suffix not in readers:
        raise BadInput(f"{path} ends in {path.suffix or 'nothing'!r}; {ACCEPTED}")
    if not path.exists():
        raise BadInput(f"{path} does not exist; {ACCEPTED}")
    try:
        columns = readers[path.suffix](path)
        return _records(columns, model)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise BadInput(f"{path} cannot be read: {error}; {ACCEPTED}") from None


def model_digest(path: Path) -> bytes:
    """SHA-256 of a model file: what plans and policies name it by."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise BadInput(f"{path} cannot be read as a model: {error.strerror}") from None


def _records(columns: dict[str, Array], model: Path | None) -> Records:
    if "label" not in columns:
        raise BadInput(f"it has columns {sorted(columns)}; missing: label")
    labels = _whole(columns["label"])
    given = columns.get("probs")
    features = columns.get("features")
    values = features if given is None else given
    if values is None:
        raise BadInput(f"it has columns {sorted(columns)}; missing: probabilities or features")
    probs, digest = given, None
    if given is None and model is not None:
        probs, digest = load_model(model)(values.astype(np.float32)), model_digest(model)
    if len(labels) != len(values) or (features is not None and len(features) != len(values)):
        raise BadInput(f"{len(labels)} labels for {len(values)} rows; accepted is a label a row")
    if features is not None and not np.isfinite(np.asarray(features, dtype=np.float64)).all():
        raise BadInput("features hold values that are not finite")
    return Records(_names(columns.get("id"), features, labels), probs, labels, digest, features)


def _whole(labels: Array) -> Array:
    """Labels as integers, also where a file gave them as floats."""
    whole = np.asarray(labels, dtype=np.float64) if labels.dtype.kind == "f" else labels
    if whole.dtype.kind == "f":
        if not np.array_equal(whole, np.rint(whole)):
            raise BadInput("labels are not whole numbers")
        return whole.astype(np.int64)
    return whole


def _names(ids: Array | None, features: Array | None, labels: Array) -> tuple[bytes, ...]:
    """Ids, or what a row says of the record itself. Probabilities do not name a record: another model gives others."""
    if ids is not None:
        return tuple(str(name).encode() for name in ids.tolist())
    if features is None:
        raise BadInput("it has probabilities and no `id`; what a record has spent is kept under its id, so each needs one")
    seen: Counter[bytes] = Counter()
    names = []
    for row, label in zip(np.ascontiguousarray(features, dtype=np.float64), labels.tolist(), strict=True):
        name = row.tobytes() + int(label).to_bytes(8, "little", signed=True)
        names.append(name + seen[name].to_bytes(4, "little"))
        seen[name] += 1
    return tuple(names)


def _npz(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as archive:
        found = {name: archive[name] for name in archive}
    renamed = {"labels": "label", "ids": "id"}
    return {renamed.get(name, name): array for name, array in found.items()}


def _csv(path: Path) -> dict[str, Array]:
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    if len(rows) < 2:
        raise BadInput("it has no header or no rows")
    header, body = [name.strip() for name in rows[0]], rows[1:]
    uneven = next((i for i, row in enumerate(body, start=2) if len(row) != len(header)), None)
    if uneven is not None:
        raise BadInput(f"line {uneven} has another number of fields than the header's {len(header)}")
    return _table(dict(zip(header, zip(*body, strict=True), strict=True)))


def _parquet(path: Path) -> dict[str, Array]:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise BadInput("reading parquet needs the package pyarrow; install confide[client]") from None
    table = pyarrow.parquet.read_table(path)
    return _table({name: table.column(name).to_pylist() for name in table.column_names})


def _table(columns: dict[str, Any]) -> dict[str, Array]:
    """Columns `id` and `label`, and the others together: as probabilities if they are p0, p1, ..., else as features."""
    special = {name: np.array(columns[name]) for name in ("id", "label") if name in columns}
    if "label" in special:
        special["label"] = special["label"].astype(np.float64)
    others = [name for name in columns if name not in special]
    values = np.array([columns[name] for name in others], dtype=np.float64).T
    probabilities = others == [f"p{i}" for i in range(len(others))]
    return special | {"probs" if probabilities else "features": values}


def load_model(path: Path) -> Model:
    """A model file as a function from float32 features to class probabilities: ONNX, or an exported torch program."""
    if not path.exists():
        raise BadInput(f"model {path} does not exist")
    if path.suffix == ".onnx":
        return _onnx(path)
    if path.suffix == ".pt2":
        return _torch(path)
    raise BadInput(f"model {path} ends in {path.suffix!r}; accepted are .onnx and .pt2 (torch.export)")


def _onnx(path: Path) -> Model:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise BadInput("ONNX models need the package onnxruntime; install confide[client]") from None
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise BadInput(f"model {path} cannot be loaded by onnxruntime: {type(error).__name__}") from None
    (entry,) = session.get_inputs()

    def score(features: Array) -> Array:
        return np.asarray(session.run(None, {entry.name: features})[-1])

    return score


def _torch(path: Path) -> Model:
    try:
        import torch
    except ModuleNotFoundError:
        raise BadInput("exported torch programs need torch; install confide[train]") from None
    try:
        module = torch.export.load(path).module()
    except Exception as error:
        raise BadInput(f"model {path} cannot be loaded by torch.export: {type(error).__name__}") from None

    def score(features: Array) -> Array:
        with torch.no_grad():
            return np.asarray(module(torch.from_numpy(np.ascontiguousarray(features))).numpy())

    return score
