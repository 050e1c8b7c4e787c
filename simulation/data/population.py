"""Records to evaluate on: a file of the user's, the embedded data set, or made up.

Records to calibrate on are what a model returned and what was observed; records to learn from are
features (n, d) with labels (n,) or targets (n,), in an npz file.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.training.scaling import public_scaling
from confide.protocol.errors import BadInput
from confide.protocol.methods.partition import spelled
from confide.protocol.prediction.known_records import check_task, read_known_records
from confide.protocol.record_files.record_columns import check_npz, read_columns
from confide.protocol.scores.base import Score
from confide.protocol.scores.regression import Residual, column, residual
from confide.protocol.scores.task import Task
from confide.protocol.simulated.embedded import letters, predictions
from confide.simulation.data.limits import Limits
from confide.simulation.data.synthetic import LINE_BOUND, LINE_NOISE, line

Array = NDArray[Any]


@dataclass(frozen=True)
class Predictions:
    """What a model returned for every record, what was observed, and whose it is, if known.

    `groups` holds the public group of every record, if records are grouped; `ignored` are columns
    of the file that nothing was read from.
    """

    name: str
    results: Array
    truth: Array
    owners: Array | None = None
    groups: Array | None = None
    ignored: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.truth)


@dataclass(frozen=True)
class Lessons:
    """Features on a public scale with labels, or with numbers of publicly bounded residuals."""

    name: str
    features: Array
    targets: Array
    bound: float | None = None

    def __len__(self) -> int:
        return len(self.targets)


def embedded() -> Predictions:
    """The provider's predictions for all embedded records that it did not learn from."""
    return Predictions("letter (embedded)", *predictions())


def predicted(
    path: Path | None, score: Score, *, owner_column: str = "", group_column: str = ""
) -> Predictions:
    """Records with results as this score reads them: from a file, or what the project has.

    The columns that name owners and groups are in a file of one's own only.
    """
    check_task(score)
    named = tuple(filter(None, (owner_column, group_column)))
    if path is not None and named:
        results, truth, ignored = read_known_records(path, score, named=named)
        n = len(truth)
        owners, groups = (
            _names(path, name, n=n) if name else None for name in (owner_column, group_column)
        )
        groups = None if groups is None else spelled(groups)
        return Predictions(str(path), results, truth, owners, groups, ignored)
    if path is not None:
        results, truth, ignored = read_known_records(path, score)
        return Predictions(str(path), results, truth, ignored=ignored)
    if named:
        which = "--owner-column" if owner_column else "--group-column"
        raise BadInput(f"{which} is {named[0]!r} without --data; accepted is both, or neither")
    return _made_up(residual(score)) if score.task.of_numbers else embedded()


def _names(path: Path, name: str, *, n: int) -> Array:
    """The names in a column of a file, one for each of n records."""
    accepted = "accepted is a column with the name of an owner or group for each record"
    # Of the other columns none is wanted, so that they may hold text.
    found = read_columns(path, accepted=accepted, named=(name,), only="(?!)").arrays.get(name)
    if found is None or found.shape != (n,):
        raise BadInput(f"{path} has no column {name!r} of {n} rows; {accepted}")
    names = np.array([str(one).strip() for one in found.tolist()])
    if (names == "").any():
        raise BadInput(f"{path}: column {name!r} is empty in {np.sum(names == '')} rows")
    return names


def _made_up(score: Residual) -> Predictions:
    """Targets around a line: predictions are the line, scale and band the deviation around it."""
    _, targets, truth = line(20_000, np.random.default_rng(0))
    columns = {
        "prediction": truth,
        "scale": np.full(len(truth), LINE_NOISE),
        "lower": truth - LINE_NOISE,
        "upper": truth + LINE_NOISE,
    }
    results = score.checked(np.column_stack([columns[name] for name in score.columns]))
    return Predictions("line (made up)", results, targets)


def lessons(
    path: Path | None, task: Task, *, bound: float | None, limits: Limits | None
) -> Lessons:
    """Records to learn from, features clipped to public limits and scaled to [-1, 1] by them."""
    if path is None and limits is not None:
        named = "--feature-ranges" if np.ndim(limits[0]) else "--feature-range"
        raise BadInput(
            f"{named} is given without --data; the records that come with the project have their "
            "own limits"
        )
    if path is not None:
        what = task.truths
        if limits is None:
            raise BadInput(
                "features need public limits, known without the records: --feature-range LOW HIGH, "
                "or --feature-ranges FILE"
            )
        features, targets = read_arrays(path, features="(n, d)", **{what: "(n,)"})
        if task.of_numbers:
            return _about(
                path,
                lambda: _scaled(
                    str(path), features, column(what, targets), limits=limits, bound=_given(bound)
                ),
            )
        return _about(path, lambda: _scaled(str(path), features, targets, limits=limits))
    if task.of_labels:
        return _scaled("letter (embedded)", *letters(), limits=(0.0, 1.0))
    features, targets, _ = line(20_000, np.random.default_rng(0))
    width = LINE_BOUND if bound is None else bound
    return _scaled("line (made up)", features, targets, limits=(-1.0, 1.0), bound=width)


def _scaled(
    name: str, features: Array, targets: Array, *, limits: Limits, bound: float | None = None
) -> Lessons:
    if features.ndim != 2 or targets.shape != features.shape[:1]:
        raise BadInput(
            f"features have shape {features.shape}, targets {targets.shape}; accepted are (n, d) "
            "and (n,)"
        )
    for what, values in (("features", features), ("targets", targets)):
        if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            raise BadInput(
                f"{what} hold values that are no finite numbers, such as nan; accepted are finite "
                "numbers"
            )
    if np.ndim(limits[0]) and len(limits[0]) != features.shape[1]:
        raise BadInput(
            f"limits are given for {len(limits[0])} features and records have "
            f"{features.shape[1]}; accepted is a pair for each"
        )
    return Lessons(name, public_scaling(*limits)(features), targets, bound)


def _given(bound: float | None) -> float:
    if bound is None:
        raise BadInput("residuals need a public bound, known without the records: --range BOUND")
    return bound


def read_arrays(path: Path, **shapes: str) -> list[Array]:
    """The named arrays of an npz file; their shapes are for the message."""
    accepted = " and ".join(f"{name} {shape}" for name, shape in shapes.items())
    try:
        # Given a path, numpy leaves the file open where it is cut short.
        with path.open("rb") as file:
            check_npz(path)
            with np.load(file, allow_pickle=False) as archive:
                missing = [name for name in shapes if name not in archive]
                if missing:
                    raise BadInput(
                        f"{path} holds {sorted(archive)}; missing: {', '.join(missing)} "
                        f"(accepted: {accepted})"
                    )
                return [archive[name] for name in shapes]
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(
            f"{path} does not exist; accepted is an npz file with arrays {accepted}"
        ) from None
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise BadInput(
            f"{path} cannot be read as an npz file with arrays {accepted}: {error}"
        ) from None


def _about(path: Path, make: Any) -> Any:
    """Errors about the arrays of a file carry the name of the file."""
    try:
        return make()
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
