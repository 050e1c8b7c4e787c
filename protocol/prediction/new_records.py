"""Reads a file of records to predict: results of a model, or features; a truth is not needed."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.methods.partition import spelled
from confide.protocol.record_files.record_columns import (
    check_features,
    observed,
    read_columns,
)
from confide.protocol.scores.base import Score

Array = NDArray[Any]


@dataclass(frozen=True)
class NewRecords:
    """Records of a file, by row.

    `given` is what a predictor takes: results of the model, or features if it has a model. `ids`
    and `truth` are None where the file has none; a truth serves to measure coverage. `groups` has
    the values of the column that groups them, if one was named. `ignored` are columns of a
    table that are no results of the model, where these are read.
    """

    given: Array
    ids: list[Any] | None
    truth: Array | None
    groups: Array | None = None
    ignored: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.given)


def read_new_records(
    path: Path,
    score: Score,
    *,
    features: bool,
    group_column: str | None = None,
    named: tuple[str, ...] = (),
) -> NewRecords:
    """Read the records of a file: their features, or the results that this score reads.

    `named` are columns that are neither, and so is the one that groups the records.
    """
    accepted = f"accepted are .npz, .csv and .parquet with {_wanted(score, features=features)}"
    named = named if group_column is None else (*named, group_column)
    only = ".*" if features else _results_of(score)
    columns = read_columns(path, accepted=accepted, named=named, only=only)
    try:
        found = _records(columns.arrays, score, features=features)
        found = replace(found, ignored=columns.ignored)
        if group_column is None:
            return found
        groups = spelled(columns.arrays[group_column].tolist())
        if groups.shape != (len(found),):
            raise BadInput(f"{group_column} has shape {groups.shape} for {len(found)} records")
        return replace(found, groups=groups)
    except BadInput as error:
        raise BadInput(f"{path}: {error}; {accepted}") from None


def _results_of(score: Score) -> str:
    """The names of the columns that this score reads, as an expression; one too many is read."""
    return "|".join(score.columns) or r"p\d+"


def _wanted(score: Score, *, features: bool) -> str:
    if features:
        return "features, and `id` if you like"
    if score.columns:
        named = " and ".join(f"`{name}`" for name in score.columns)
        return f"{named}, and `id` if you like; features need a model"
    return "probabilities `p0`, `p1`, ..., and `id` if you like; features need a model"


def _records(arrays: dict[str, Array], score: Score, *, features: bool) -> NewRecords:
    names = ("features",) if features else score.columns or ("probs",)
    missing = [name for name in names if name not in arrays]
    if missing:
        raise BadInput(f"it has {', '.join(sorted(arrays))}; missing: {', '.join(missing)}")
    found = [arrays[name] for name in names]
    for name, values in zip(names, found, strict=True):
        if not values.ndim:
            raise BadInput(f"{name} has shape {values.shape}; accepted is a row a record")
    given = found[0] if len(found) == 1 else np.column_stack(found)
    truth, ids = observed(score.task, arrays), arrays.get("id")
    for what, rows, dimensions in (("id", ids, 1), ("truth", truth, score.task.dimensions)):
        if rows is not None and (rows.ndim != dimensions or len(rows) != len(given)):
            raise BadInput(f"{what} has shape {rows.shape} for {len(given)} records")
    check_features(given)
    return NewRecords(given, None if ids is None else ids.tolist(), truth)
