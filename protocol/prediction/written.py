"""Writes prediction sets and intervals as parquet, csv, npz or jsonl: whole files or none."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.files import check_writable, write_whole

Array = NDArray[Any]


@dataclass(frozen=True)
class Predicted:
    """Sets (n, K) as booleans, or intervals (n, 2), of records that may have ids."""

    rows: Array
    ids: Sequence[Any] | None = None

    @property
    def are_sets(self) -> bool:
        return self.rows.dtype == np.bool_

    @property
    def names(self) -> Sequence[Any]:
        """The ids, or the numbers of the rows."""
        return range(len(self.rows)) if self.ids is None else self.ids

    @property
    def flat(self) -> tuple[Array, Array]:
        """The labels of all sets, one after the other, and where each set begins and ends."""
        labels = np.nonzero(self.rows)[1].astype(np.int32)
        ends = np.concatenate([[0], np.cumsum(self.rows.sum(axis=1))]).astype(np.int32)
        return labels, ends

    def labels(self) -> list[list[int]]:
        labels, ends = self.flat
        listed = labels.tolist()
        return [listed[a:b] for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]


def _parquet(found: Predicted) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise BadInput(
            "writing parquet needs the package pyarrow; install confide[client]"
        ) from None
    columns: dict[str, Any] = {"id": pyarrow.array(list(found.names))}
    if found.are_sets:
        labels, ends = found.flat
        columns["size"] = pyarrow.array(np.diff(ends))
        columns["labels"] = pyarrow.ListArray.from_arrays(
            pyarrow.array(ends), pyarrow.array(labels)
        )
    else:
        columns |= {"low": found.rows[:, 0], "high": found.rows[:, 1]}
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue()


def _csv(found: Predicted) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if found.are_sets:
        writer.writerow(["id", "size", "labels"])
        for name, labels in zip(found.names, found.labels(), strict=True):
            writer.writerow([name, len(labels), " ".join(map(str, labels))])
    else:
        writer.writerow(["id", "low", "high"])
        for name, (low, high) in zip(found.names, found.rows.tolist(), strict=True):
            writer.writerow([name, repr(low), repr(high)])
    return text.getvalue().encode()


def _npz(found: Predicted) -> bytes:
    arrays: dict[str, Any] = {"sets" if found.are_sets else "intervals": found.rows}
    if found.ids is not None:
        ids = np.asarray(found.ids)
        # Objects would be pickled, which no reader should accept.
        arrays["ids"] = ids if ids.dtype != object else np.array([str(name) for name in found.ids])
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    return sink.getvalue()


def _jsonl(found: Predicted) -> bytes:
    lines = []
    if found.are_sets:
        for name, labels in zip(found.names, found.labels(), strict=True):
            lines.append({"id": name, "size": len(labels), "labels": labels})
    else:
        for name, (low, high) in zip(found.names, found.rows.tolist(), strict=True):
            # The ends of the whole line have no number in JSON.
            ends = [end if np.isfinite(end) else None for end in (low, high)]
            lines.append({"id": name, "low": ends[0], "high": ends[1]})
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()


WRITERS: dict[str, Callable[[Predicted], bytes]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".npz": _npz,
    ".jsonl": _jsonl,
}


def check_place(path: Path, *, inputs: Sequence[Path | None]) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    if path.suffix not in WRITERS:
        raise BadInput(
            f"{path} ends in {path.suffix or 'nothing'!r}; accepted: {', '.join(WRITERS)}"
        )
    check_writable(path)
    taken = [one for one in inputs if one is not None and one.resolve() == path.resolve()]
    if taken:
        raise BadInput(f"{path} is also read; accepted is another file for what is predicted")


def write_predicted(path: Path, found: Predicted) -> None:
    """Write the file as a whole, in the format of its ending."""
    write_whole(path, WRITERS[path.suffix](found))
