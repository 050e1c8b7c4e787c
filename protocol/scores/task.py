"""What scores are about: labels, numbers, several labels of a record, or losses of one's own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.probabilities import check_probabilities

Array = NDArray[Any]


@dataclass(frozen=True)
class Task:
    """What is observed of a record, and what a threshold of its scores predicts.

    `name` is the word of cards and options. A file of records holds the truth in `column`, with
    `dimensions`; messages call it `truths`. `checked` returns a model's results as the task reads
    them, or raises `BadInput`. A threshold gives sets of labels, intervals of numbers, or nothing
    but itself. With `of_risk`, coverage is one minus an expected loss.
    """

    name: str
    column: str
    truths: str
    dimensions: int = 1
    checked: Callable[[ArrayLike], Array] = np.asarray
    of_labels: bool = False
    of_numbers: bool = False
    of_risk: bool = False

    def __str__(self) -> str:
        return self.name


def single(results: ArrayLike) -> Array:
    """Return probabilities of labels in single precision, as owners score and report them."""
    return check_probabilities(results).astype(np.float32, copy=False)


def chances(results: ArrayLike) -> Array:
    """Return a model's results if each is a probability of its own, in single precision."""
    found = np.asarray(results)
    if found.ndim != 2 or found.dtype.kind != "f" or not ((found >= 0) & (found <= 1)).all():
        raise BadInput(
            f"results have shape {found.shape} and type {found.dtype}, or values outside of "
            "[0, 1]; accepted is a probability for each label, a row a record"
        )
    return found.astype(np.float32, copy=False)


CLASSIFICATION = Task("classification", "label", "labels", checked=single, of_labels=True)
REGRESSION = Task("regression", "target", "targets", of_numbers=True)
MULTI_LABEL = Task(
    "multi-label",
    "true_labels",
    "true labels",
    dimensions=2,
    checked=chances,
    of_labels=True,
    of_risk=True,
)
OWN_LOSS = Task("own-loss", "losses", "losses", dimensions=2, of_risk=True)
TASKS = {task.name: task for task in (CLASSIFICATION, REGRESSION, MULTI_LABEL, OWN_LOSS)}


def task_of(truth: Array) -> Task:
    """Return the task that truths are of."""
    if truth.ndim == 2:
        return OWN_LOSS if truth.dtype.kind == "f" else MULTI_LABEL
    return REGRESSION if truth.dtype.kind == "f" else CLASSIFICATION
