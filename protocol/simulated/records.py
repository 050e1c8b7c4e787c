"""The records of a simulation, embedded or in a file of one's own, and how they are dealt.

Nodes and ServerApp of a simulation read the same run configuration and come to the same records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.methods.partition import spelled
from confide.protocol.record_files.record_columns import (
    Columns,
    check_features,
    read_columns,
    truths,
)
from confide.protocol.record_files.record_tables import TextColumn
from confide.protocol.scores.base import Score
from confide.protocol.scores.task import Task, task_of
from confide.protocol.simulated.dealing import Dealt, deal, deal_by_column
from confide.protocol.simulated.embedded import owned, predictions

Array = NDArray[Any]
Config = Mapping[str, Any]

EMBEDDED_RECORDS = 10_000
MOST_SHIFT = 10
ACCEPTED = (
    "accepted are .npz, .csv and .parquet with `label` and probabilities `p0`, `p1`, ..., or "
    "`target` and `prediction` (with `scale`) or `lower` and `upper`, or features instead of a "
    "model's results; and the column of owners where one is named"
)


@dataclass(frozen=True, eq=False)
class SimulatedData:
    """The truth of every record, with the results of a model, or features, or both.

    Truths are labels, or targets as floats; results are probabilities, or numbers under the names
    in `columns`. `owners` are the names in the column of owners, and `holders` the number of its
    owner for each record; without such a column the simulation deals the records. Ids are made up
    if there are none. `public` has the column that groups the records, if one is named.
    """

    name: str
    truth: Array
    results: Array | None
    features: Array | None
    ids: Array | None = None
    persons: Array | None = None
    owners: tuple[str, ...] = ()
    holders: Array | None = None
    columns: tuple[str, ...] = ()
    public: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def task(self) -> Task:
        """What the truths are: labels, numbers, flags of labels, or losses."""
        return task_of(self.truth)

    def results_for(self, score: Score) -> Array | None:
        """Return the results that a score reads, if records came with them."""
        if self.results is None or not set(score.columns) <= set(self.columns):
            return None
        if not score.columns:
            return self.results
        return self.results[:, [self.columns.index(name) for name in score.columns]]

    @property
    def feature_count(self) -> int:
        """How many numbers a record has; 0 if there are no features."""
        return 0 if self.features is None else int(np.prod(self.features.shape[1:]))


def simulated_data(config: Config) -> SimulatedData:
    """Return the records that a run configuration names, read once per process."""
    path = str(config["data"])
    columns = {name: str(config.get(name, "")) for name in ("owner-column", "group-column")}
    stray = next((name for name, column in columns.items() if column and not path), None)
    if stray:
        raise BadInput(f"{stray} is {columns[stray]!r} without data; accepted is both, or neither")
    return _read(path, *columns.values()) if path else _embedded()


@cache
def _embedded() -> SimulatedData:
    results, truth = predictions()
    return SimulatedData("embedded letters", truth, results, owned()[0])


@cache
def _read(path: str, column: str, group: str) -> SimulatedData:
    if not Path(path).is_absolute():
        raise BadInput(
            f"data is {path!r}; accepted is an absolute path: the app runs in a folder of Flower's"
        )
    try:
        named = tuple(filter(None, (column, group)))
        columns = read_columns(Path(path), accepted=ACCEPTED, named=named)
    except TextColumn as error:
        if column:
            raise
        raise BadInput(
            f"{error}; if it names the owner of each record, owner-column (--owner-column) says so"
        ) from None
    try:
        found = _checked(Path(path).name, columns, column)
        return _grouped(found, columns.arrays[group], group) if group else found
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _checked(name: str, columns: Columns, column: str) -> SimulatedData:
    arrays = columns.arrays
    truth, results, named = truths(arrays)
    features = arrays.get("features")
    if features is not None:
        check_features(features)
    if results is not None:
        results = task_of(truth).checked(results)
    own = {"results": results, "features": features, column: arrays.get(column)}
    for what, rows in own.items():
        if rows is not None and (rows.ndim == 0 or len(rows) != len(truth)):
            found = f"it has {len(truth)} {task_of(truth).truths}"
            raise BadInput(f"{found} and {what} of shape {rows.shape}")
    data = SimulatedData(
        name, truth, results, features, arrays.get("id"), arrays.get("person"), columns=named
    )
    return _held(data, arrays[column]) if column else data


def _grouped(data: SimulatedData, values: Array, column: str) -> SimulatedData:
    """Return the data with the public column by which records are grouped."""
    if values.shape != (len(data),):
        raise BadInput(f"it has {len(data)} records and {column} of shape {values.shape}")
    return replace(data, public={column: spelled(values.tolist())})


def _held(data: SimulatedData, column: Array) -> SimulatedData:
    """Return the data with the owners that a column names."""
    named = np.array([str(value).strip() for value in column.tolist()])
    if (named == "").any():
        raise BadInput(f"the column of owners is empty for {np.sum(named == '')} records")
    owners, holders = np.unique(named, return_inverse=True)
    return replace(data, owners=tuple(owners.tolist()), holders=holders.reshape(-1))


def dealt_records(config: Config) -> int:
    """Return how many records are dealt; the others are the test.

    They are `records`, or else 10,000 of the embedded ones, or all of a file but `test-share`.
    """
    given, n = int(config["records"]), len(simulated_data(config))
    if given or not config["data"]:
        return given or EMBEDDED_RECORDS
    share = float(config["test-share"])
    if not 0 < share < 1:
        raise BadInput(
            f"test-share is {share:g}; accepted is a number above 0 and below 1, the share of "
            "records that is dealt to nobody"
        )
    return n - max(1, round(n * share))


def dealt(config: Config, *, owners: int) -> Dealt:
    """Deal the records to so many owners, once per process."""
    rules = {
        name: config[name] for name in (*_RULES, "data", "owner-column", "group-column", "seed")
    }
    return _dealt(tuple(rules.items()), dealt_records(config), owners)


# A trial of an experiment has a deal of its own.
@lru_cache(maxsize=4)
def _dealt(rules: tuple[tuple[str, Any], ...], records: int, owners: int) -> Dealt:
    config = dict(rules)
    return deal_records(simulated_data(config), config | {"records": records}, owners=owners)


# The settings that say how records are dealt, where no column does.
_RULES: dict[str, Any] = {"sizes": "1", "concentration": 0.0, "replacement": False}
_RULES |= {"covariate-shift": 0.0}


def deal_records(data: SimulatedData, config: Config, *, owners: int) -> Dealt:
    """Deal `records` of these records to so many owners, by the rules of a run configuration."""
    records, seed = int(config["records"]), max(int(config["seed"]), 0)
    rules = {name: type(value)(config[name]) for name, value in _RULES.items()}
    if data.holders is not None:
        if rules != _RULES:
            raise BadInput(
                "sizes, concentration, replacement or covariate-shift are given with the column of "
                f"owners {config['owner-column']!r}, which says who holds what; accepted is one of "
                "them"
            )
        if owners != len(data.owners):
            raise BadInput(
                f"there are {owners} nodes, and column {config['owner-column']!r} of {data.name} "
                f"names {len(data.owners)} owners; accepted is a node for each (flwr run: "
                f"--federation-config num-supernodes={len(data.owners)})"
            )
        return deal_by_column(data.holders, records=records, seed=seed)
    return deal(
        _strata(data.truth),
        owners=owners,
        records=records,
        sizes=str(rules["sizes"]),
        concentration=float(rules["concentration"]),
        replacement=bool(rules["replacement"]),
        tilt=covariate_tilt(data, float(rules["covariate-shift"])),
        seed=seed,
    )


def covariate_tilt(data: SimulatedData, shift: float) -> Array | None:
    """Return exp(shift z) for every record; None without a shift.

    z is how sure the model is of the record, its largest result, or else the sum of its features,
    in standard deviations and at most 3: a function of the features, so that only these shift.
    """
    if not shift:
        return None
    if not abs(shift) <= MOST_SHIFT:
        raise BadInput(
            f"covariate-shift is {shift}; accepted are numbers from -{MOST_SHIFT} to {MOST_SHIFT}"
        )
    given = data.results if data.results is not None else data.features
    assert given is not None
    rows = given.reshape(len(given), -1).astype(np.float64)
    value = rows.max(axis=1) if data.results is not None else rows.sum(axis=1)
    deviations = (value - value.mean()) / (value.std() or 1.0)
    found: Array = np.exp(shift * np.clip(deviations, -3, 3))
    return found


def _strata(truth: Array) -> Array:
    """Return labels, or the tenth that a target, or the mean of a row, lies in.

    A Dirichlet skew deals them unevenly; simulated owners then have different targets.
    """
    if truth.ndim == 2:
        truth = truth.mean(axis=1)
    if truth.dtype.kind != "f":
        return truth
    ranks = np.argsort(np.argsort(truth, kind="stable"), kind="stable")
    return ranks * 10 // len(truth)
