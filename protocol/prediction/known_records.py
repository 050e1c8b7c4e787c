"""Reads a file of records whose truth is known: what a model returned, and what was observed."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.prediction.batches import BatchModel
from confide.protocol.prediction.new_records import read_new_records
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.base import Score
from confide.protocol.scores.probabilities import check_labels
from confide.protocol.scores.regression import column, residual

Array = NDArray[Any]


def check_task(score: Score) -> None:
    """Refuse a score of a loss, which bounds no coverage."""
    if score.task.of_risk:
        raise BadInput(f"score is {score.text!r}; accepted is one of labels or of numbers")


def read_known_records(
    path: Path, score: Score, *, model: BatchModel | None = None, named: tuple[str, ...] = ()
) -> tuple[Array, Array, tuple[str, ...]]:
    """Return results of the model and the truth, checked for this score, and columns not read.

    The file has the results, or features if there is a model. Losses are not read here; `named`
    are columns that are neither, such as one of owners.
    """
    check_task(score)
    found = read_new_records(path, score, features=model is not None, named=named)
    if found.truth is None:
        raise BadInput(f"{path} has no column {score.task.column!r}; accepted are records with it")
    try:
        results = Predictor(score, 1.0, model=model).results(found.given)
        if score.task.of_numbers:
            truth = column("targets", found.truth)
            return residual(score).checked(results), truth, found.ignored
        labels = check_labels(found.truth, n=len(results), k=results.shape[1])
        return results, labels, found.ignored
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
