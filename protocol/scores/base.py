"""The interface of scores: what a plan names, owners compute, and predictions are made with."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.errors import BadInput, narrowed
from confide.protocol.scores.task import Task

Array = NDArray[Any]


class Score(ABC):
    """A conformity score in [0, 1], lower conforming better, with its constants.

    Constants are public and fixed in the plan: a score is a function of one record, its model's
    results and, if `randomized`, of one uniform number that only the owner can predict.
    """

    task: ClassVar[Task]
    # The constants without a default, as messages show them.
    needs: ClassVar[str] = ""
    # The columns of a model's results, by the names that files of records give them; probabilities
    # of labels have none.
    columns: ClassVar[tuple[str, ...]] = ()
    name: str
    randomized: bool

    @classmethod
    def narrowed(cls, score: "Score", *, accepted: str) -> Self:
        """Return a score as one of this class; refuse one of another task."""
        found = f"score is {score.text!r}, of the task {score.task}"
        return narrowed(score, cls, found=found, accepted=f"is {accepted}")

    @property
    @abstractmethod
    def constants(self) -> Mapping[str, float]:
        """The constants that are part of the score's text, in their order."""

    @property
    def text(self) -> str:
        """The name with the constants, as plans and cards hold it: one text for one score."""
        return " ".join(
            [self.name, *(f"{key}={_number(at)}" for key, at in self.constants.items())]
        )

    @abstractmethod
    def with_constants(self, given: Mapping[str, float]) -> Self:
        """Return this score with these constants; refuse unknown ones and values out of bounds."""

    @abstractmethod
    def check_labels(self, labels: int) -> None:
        """Refuse a number of labels that a plan with this score cannot have."""

    @abstractmethod
    def meaning(self, labels: int) -> str:
        """Say to an owner what is predicted, and how a record is scored if that needs words."""

    @abstractmethod
    def width(self, labels: int) -> int:
        """Return how many numbers a model returns for a record."""

    @abstractmethod
    def true_scores(self, results: ArrayLike, truth: ArrayLike, *, u: ArrayLike | None) -> Array:
        """Return the (n,) scores of the truth; refuse results or truth that are not valid."""

    @abstractmethod
    def owned_scores(self, results: Array, truth: Array, *, u: Array | None) -> Array:
        """Return the (n,) scores of an owner's records without ever failing on what they hold.

        A truth that cannot be covered scores 1: an error would reveal that some record has it.
        """


class SetScore(Score):
    """A score of labels: a threshold gives the set of those that score at most as much."""

    @classmethod
    def of(cls, score: Score) -> Self:
        """Return a score as one of labels; refuse others."""
        return cls.narrowed(score, accepted="one of labels")

    def check_labels(self, labels: int) -> None:
        if labels < 2:
            raise BadInput(f"labels is {labels} with score {self.name}; accepted is 2 or more")

    def width(self, labels: int) -> int:
        return labels

    @abstractmethod
    def all_scores(self, results: ArrayLike, *, u: ArrayLike | None = None) -> Array:
        """Return the (n, K) scores of every label."""

    @abstractmethod
    def within(
        self, results: ArrayLike, threshold: ArrayLike, *, u: ArrayLike | None = None
    ) -> NDArray[np.bool_]:
        """Return (n, K) flags: the label scores at most the threshold, or each at most its own."""


class UnlabelledScore(Score):
    """A score of truths that are no labels, which is made from its constants alone."""

    @classmethod
    @abstractmethod
    def of(cls, given: Mapping[str, float]) -> Self:
        """Make the score from its constants; refuse unknown ones and values out of bounds."""

    def with_constants(self, given: Mapping[str, float]) -> Self:
        return self.of({**self.constants, **given})

    def check_labels(self, labels: int) -> None:
        check_no_labels(self.name, labels)


def check_no_labels(name: str, labels: int) -> None:
    """Refuse labels with a score of numbers or losses."""
    if labels != 0:
        raise BadInput(f"labels is {labels} with score {name}, which has none: accepted is 0")


def check_constants(
    name: str, given: Mapping[str, float], limits: Mapping[str, tuple[float, float]]
) -> None:
    """Refuse a constant that the score does not take, or a value outside its limits."""
    for key, value in given.items():
        if key not in limits:
            accepted = ", ".join(limits) or "none"
            raise BadInput(f"score {name} has no constant {key[:40]!r}; accepted: {accepted}")
        least, most = limits[key]
        if not (math.isfinite(value) and least <= value <= most):
            raise BadInput(
                f"{key} of score {name} is {value!r}; accepted is a number from {least:g} to "
                f"{most:g}"
            )


def _number(value: float) -> str:
    """Write a number in one way: whole numbers without a point."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
