"""The results of a model for all records, computed once: predictions, or inputs of a head.

A folder keeps a file for each model, number of results, way of scoring and kind of results. A
record's row is found in it by a digest of its features: a later round does not run the model, a
file that has grown only for its new rows, and a changed label costs nothing. A file that is
damaged, or of another model, does not carry the right digests; it is ignored and written again.
"""

import hashlib
import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.records.records import Records
from confide.protocol.errors import BadInput
from confide.protocol.files import write_whole
from confide.protocol.models.model_file import Model
from confide.protocol.models.results import NUMBERS, PREDICTIONS, PROBABILITIES, ResultKind
from confide.protocol.models.scorer import Progress, score

log = logging.getLogger(__name__)

Array = NDArray[Any]

CHECKSUM, NAME = 4, 16
START = CHECKSUM + hashlib.sha256().digest_size


def probabilities(
    records: Records,
    model: Model | None,
    *,
    labels: int,
    kind: ResultKind = PROBABILITIES,
    vetted: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Array:
    """(n, labels) float32 probabilities under the model, or those that the records came with.

    A vetted model sees many records at once. `progress` is called with the number of records scored
    so far and the number to score.
    """
    if records.results is not None:
        if records.results.shape[1] != labels:
            raise BadInput(
                f"the records have probabilities of {records.results.shape[1]} labels; accepted "
                f"are {labels}"
            )
        return records.results.astype(np.float32, copy=False)
    return _results(
        records, model, kind, width=labels, vetted=vetted, cache=cache, progress=progress
    )


def predictions(
    records: Records,
    model: Model | None,
    *,
    columns: tuple[str, ...],
    vetted: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Array:
    """(n, columns) numbers under the model, or those of these names that the records came with.

    A row that is not finite throughout, and that of a record on which the model fails, is NaN.
    """
    if records.results is not None and set(columns) <= set(records.columns):
        return records.results[:, [records.columns.index(name) for name in columns]]
    return _results(
        records,
        model,
        PREDICTIONS,
        width=len(columns),
        vetted=vetted,
        cache=cache,
        progress=progress,
    )


def head_inputs(
    records: Records,
    model: Model | None,
    *,
    width: int,
    vetted: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Array:
    """(n, width) float32 outputs of the model for the records' features, clipped to [0, 1].

    A number that is not finite, and every number of a record on which the model fails, is 0.
    """
    return _results(
        records, model, NUMBERS, width=width, vetted=vetted, cache=cache, progress=progress
    )


def _results(
    records: Records,
    model: Model | None,
    kind: ResultKind,
    *,
    width: int,
    vetted: bool,
    cache: Path | None,
    progress: Progress | None,
) -> Array:
    if records.features is None or model is None:
        raise BadInput(
            "the records hold features and no results; name the model that scores them"
            if records.features is not None
            else "the records hold no features; accepted are records that a model can run on"
        )
    features = np.ascontiguousarray(records.features)
    run = partial(_score, model, kind=kind, labels=width, vetted=vetted, progress=progress)
    if cache is None:
        return run(features)
    return _from_cache(_Cache(cache, model.digest, kind, width, vetted), features, run)


def _from_cache(kept: "_Cache", features: Array, run: Callable[[Array], Array]) -> Array:
    """Rows that the cache holds, and the others by running the model; all are kept."""
    whole, found = kept.digest(features), kept.read()
    if found is not None and found.whole == whole:
        return found.rows
    names = kept.names(features)
    places = np.full(len(features), -1, dtype=np.int64)
    rows = np.empty((len(features), kept.width), dtype=np.float32)
    if found is not None:
        at = {found.names[i * NAME : (i + 1) * NAME]: i for i in range(len(found.rows))}
        places[:] = [at.get(names[i : i + NAME], -1) for i in range(0, len(names), NAME)]
        rows[places >= 0] = found.rows[places[places >= 0]]
    new = places < 0
    if new.any():
        rows[new] = run(features[new])
    kept.write(_Table(whole, names, rows))
    return rows


def _score(
    model: Model,
    features: Array,
    *,
    kind: ResultKind,
    labels: int,
    vetted: bool,
    progress: Progress | None,
) -> Array:
    """Run the model, and warn of records without a usable result."""
    rows = score(model, features, labels=labels, vetted=vetted, kind=kind, progress=progress)
    empty = np.count_nonzero(kind.empty(rows))
    if empty:
        log.warning(
            "%d of %d records have %s; so has a record for which the model gives no usable result",
            empty,
            len(rows),
            kind.without,
        )
    return rows


@dataclass(frozen=True)
class _Table:
    """Rows of results, their records' names, and a digest of all features.

    A name is a digest of a record's features; names are joined in the order of the rows.
    """

    whole: bytes
    names: bytes
    rows: Array


@dataclass(frozen=True)
class _Cache:
    folder: Path
    model: bytes
    kind: ResultKind
    width: int
    vetted: bool

    @property
    def path(self) -> Path:
        way = "-vetted" if self.vetted else ""
        return self.folder / f"{self.model.hex()}-{self.width}{way}.{self.kind.suffix}"

    @property
    def _key(self) -> bytes:
        return self.kind.tag + self.model + self.width.to_bytes(4, "little") + bytes([self.vetted])

    def digest(self, features: Array) -> bytes:
        """SHA-256 of all features, with their type and shape."""
        state = hashlib.sha256(self._key + f"{features.dtype.str}{features.shape}".encode())
        state.update(features.data)
        return state.digest()

    def names(self, features: Array) -> bytes:
        """Digests of each record's features, joined."""
        start = hashlib.sha256(self._key + f"{features.dtype.str}{features.shape[1:]}".encode())
        names = []
        for row in features:
            state = start.copy()
            state.update(row.data)
            names.append(state.digest()[:NAME])
        return b"".join(names)

    def read(self) -> _Table | None:
        """Read the file; None if it is missing or damaged.

        It holds a checksum of the rest, the digest of all features, the names and the rows.
        """
        try:
            content = np.fromfile(self.path, dtype=np.uint8)
        except OSError:
            return None
        n, left = divmod(len(content) - START, NAME + 4 * self.width)
        if n < 0 or left or self._checksum(content[CHECKSUM:].data) != content[:CHECKSUM].tobytes():
            return None
        split = START + n * NAME
        rows = content[split:].view("<f4").reshape(n, self.width).astype(np.float32, copy=False)
        if n and not self.kind.holds(rows):
            return None
        return _Table(content[CHECKSUM:START].tobytes(), content[START:split].tobytes(), rows)

    def write(self, table: _Table) -> None:
        """Write the file; that it cannot be written, as on a full disk, is a warning only."""
        rest = table.whole + table.names + table.rows.astype("<f4", copy=False).tobytes()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self.path, self._checksum(rest) + rest, mode=0o600)
        except (OSError, BadInput) as error:
            log.warning("scores are not kept for the next round: %s", error)

    def _checksum(self, rest: bytes | memoryview) -> bytes:
        """Finds accidental damage; the digests tie rows to records and to the model."""
        return zlib.crc32(rest, zlib.crc32(self._key)).to_bytes(CHECKSUM, "little")
