"""Records to evaluate on: an npz file of the user's, the embedded data set, or made up.

predicted labels     probs (n, K) and labels (n,)
predicted numbers    predictions (n,) and targets (n,), with a public bound on the residuals
records to learn     features (n, d) and labels (n,) or targets (n,)
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.training.scaling import public_scaling
from confide.protocol.embedded import letters, predictions
from confide.protocol.errors import BadInput
from confide.protocol.scores.probabilities import check_labels, check_probabilities
from confide.protocol.scores.registry import find_label_score
from confide.protocol.scores.regression import AbsoluteResidual, column
from confide.protocol.scores.scoring import all_scores, true_scores
from confide.simulation.data.limits import Limits
from confide.simulation.data.synthetic import LINE_BOUND, line

Array = NDArray[Any]

CLASSIFICATION, REGRESSION = "classification", "regression"


@dataclass(frozen=True)
class Scored:
    """Scores of the truth, and of every possible prediction.

    Predictions are labels, or numbers with the width of a threshold.
    """

    own: Array
    every: Array | None
    bound: float

    def mean_size(self, rows: Array, threshold: float) -> float:
        """Labels in the set, or the width of the interval: infinite at the trivial threshold."""
        if self.every is not None:
            return float(np.count_nonzero(self.every[rows] <= np.float64(threshold)) / len(rows))
        low, high = AbsoluteResidual(self.bound).interval(np.zeros(1), threshold)
        return float(high[0] - low[0])


@dataclass(frozen=True)
class Population:
    """Class probabilities of every record and its label."""

    name: str
    probs: Array
    labels: Array

    def __post_init__(self) -> None:
        check_probabilities(self.probs)
        check_labels(self.labels, n=len(self.probs), k=self.probs.shape[1])

    def __len__(self) -> int:
        return len(self.labels)

    def scored(self, score: str, u: Array) -> Scored:
        ranked = find_label_score(score)
        own = true_scores(ranked, self.probs, self.labels, u=u)
        return Scored(own, all_scores(ranked, self.probs, u=u), 1.0)


@dataclass(frozen=True)
class Predictions:
    """A number predicted for every record, its true one, and a public bound on their difference."""

    name: str
    predictions: Array
    targets: Array
    bound: float

    def __post_init__(self) -> None:
        self.scored("", np.empty(0))

    def __len__(self) -> int:
        return len(self.targets)

    def scored(self, score: str, u: Array) -> Scored:
        own = AbsoluteResidual(self.bound).true_scores(self.predictions, self.targets)
        return Scored(own, None, self.bound)


@dataclass(frozen=True)
class Lessons:
    """Features on a public scale with labels, or with numbers of publicly bounded residuals."""

    name: str
    features: Array
    targets: Array
    bound: float | None = None

    def __len__(self) -> int:
        return len(self.targets)


def from_npz(path: Path) -> Population:
    """Read arrays `probs` (n, K) and `labels` (n,)."""
    probs, labels = read_arrays(path, probs="(n, K)", labels="(n,)")
    return _about(path, lambda: Population(str(path), probs, labels))


def embedded() -> Population:
    """The provider's predictions for all embedded records that it did not learn from."""
    return Population("letter (embedded)", *predictions())


def predicted(path: Path | None, task: str, bound: float | None) -> Population | Predictions:
    """Records with predictions: from a file, or what comes with the project."""
    if task == CLASSIFICATION:
        return embedded() if path is None else from_npz(path)
    if path is None:
        _, targets, truth = line(20_000, np.random.default_rng(0))
        return Predictions("line (made up)", truth, targets, LINE_BOUND if bound is None else bound)
    predictions_, targets = read_arrays(path, predictions="(n,)", targets="(n,)")
    return _about(path, lambda: Predictions(str(path), predictions_, targets, _given(bound)))


def lessons(path: Path | None, task: str, *, bound: float | None, limits: Limits | None) -> Lessons:
    """Records to learn from, features clipped to public limits and scaled to [-1, 1] by them."""
    what = "labels" if task == CLASSIFICATION else "targets"
    if path is None and limits is not None:
        named = "--feature-ranges" if np.ndim(limits[0]) else "--feature-range"
        raise BadInput(
            f"{named} is given without --data; the records that come with the project have their "
            "own limits"
        )
    if path is not None:
        if limits is None:
            raise BadInput(
                "features need public limits, known without the records: --feature-range LOW HIGH, "
                "or --feature-ranges FILE"
            )
        features, targets = read_arrays(path, features="(n, d)", **{what: "(n,)"})
        if what == "targets":
            return _about(
                path,
                lambda: _scaled(
                    str(path), features, column(what, targets), limits=limits, bound=_given(bound)
                ),
            )
        return _about(path, lambda: _scaled(str(path), features, targets, limits=limits))
    if task == CLASSIFICATION:
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
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in shapes if name not in archive]
            if missing:
                raise BadInput(
                    f"{path} holds {sorted(archive)}; missing: {', '.join(missing)} (accepted: "
                    f"{accepted})"
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
