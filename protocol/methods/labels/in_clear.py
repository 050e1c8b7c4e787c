"""What a report of method labels comes with in clear: probabilities, or the record's features.

With probabilities the owner scores its records. With features the aggregator does, with a model
that it shows to nobody.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from confide.protocol.errors import BadInput
from confide.protocol.methods.subjects import Subjects
from confide.protocol.scores.probabilities import check_probabilities
from confide.protocol.wire.columns import Array

# The most numbers of a record that a plan may ask for: eight records fit into half a megabyte, and
# answers are split between every eight reports.
MOST_SENT_FEATURES = 1 << 14
OWNER, AGGREGATOR = "owner", "aggregator"
SCORING = (OWNER, AGGREGATOR)


def check_any_labels(labels: int) -> None:
    """Refuse a plan that has no labels, because its score is one of numbers."""
    if not labels:
        raise BadInput(
            "method labels has a score of numbers; accepted are scores of labels, or the methods "
            "bits and central"
        )


@dataclass(frozen=True)
class InClear(ABC):
    """A column of numbers in clear beside the randomised labels of a plan with so many labels."""

    labels: int

    # The field of the message with reports, and of their columns.
    name: ClassVar[str]

    @property
    @abstractmethod
    def width(self) -> int:
        """The numbers of a record."""

    @property
    @abstractmethod
    def alphabet(self) -> int:
        """The values that a label has before it is randomised."""

    @abstractmethod
    def of(self, subjects: Subjects) -> Array:
        """Return the numbers of these records."""

    @abstractmethod
    def foreign(self, rows: Array) -> Array:
        """Return the value that is randomised in place of a label that is not in the plan."""

    @abstractmethod
    def check(self, rows: Array) -> None:
        """Refuse rows that no owner would send."""

    @abstractmethod
    def complete(self, scores: Array) -> Array:
        """Return the scores of every value of the alphabet, from those of the plan's labels."""


@dataclass(frozen=True)
class Probabilities(InClear):
    """The probabilities that the plan's model gives every label of the plan.

    A label that the plan does not have becomes the one that the model finds least likely, the last
    to be covered.
    """

    name: ClassVar[str] = "probabilities"

    @property
    def width(self) -> int:
        return self.labels

    @property
    def alphabet(self) -> int:
        return self.labels

    def of(self, subjects: Subjects) -> Array:
        return subjects.probabilities()

    def foreign(self, rows: Array) -> Array:
        return rows.argmin(axis=1)

    def check(self, rows: Array) -> None:
        check_probabilities(rows)

    def complete(self, scores: Array) -> Array:
        return scores


@dataclass(frozen=True)
class Features(InClear):
    """So many features of a record, as they are.

    The owner has no model, so it cannot tell which label is least likely. Labels that the plan does
    not have are therefore one more value of the alphabet. Its score is 1, so that no threshold
    below 1 covers it.
    """

    count: int

    name: ClassVar[str] = "features"

    @property
    def width(self) -> int:
        return self.count

    @property
    def alphabet(self) -> int:
        return self.labels + 1

    def of(self, subjects: Subjects) -> Array:
        return subjects.features()

    def foreign(self, rows: Array) -> Array:
        return np.full(len(rows), self.labels)

    def check(self, rows: Array) -> None:
        if not np.isfinite(rows).all():
            raise BadInput("features are not finite; accepted are finite numbers")

    def complete(self, scores: Array) -> Array:
        return np.concatenate([scores, np.ones((len(scores), 1), dtype=scores.dtype)], axis=1)
