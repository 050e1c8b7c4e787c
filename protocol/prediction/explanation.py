"""Why a label is in a prediction set or not, and how an interval was made: record by record."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.scores.base import Score
from confide.protocol.scores.regression import Residual

# The labels of a record that are printed: those of the set, and the closest beyond it.
_BEYOND = 3


@dataclass(frozen=True)
class LabelReason:
    """A label and its score; it is in the set if that is at most the label's threshold."""

    label: int
    score: float
    inside: bool
    threshold: float


@dataclass(frozen=True)
class RecordExplanation:
    """A record's set or interval, and the reason for it; printed, it says so in words.

    `reasons` are all labels of the record, lowest score first. An interval has none.
    """

    record: int
    score: str
    threshold: float
    reasons: tuple[LabelReason, ...] = ()
    interval: tuple[float, float] | None = None
    results: tuple[float, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._interval_lines() if self.interval else self._label_lines())

    def _label_lines(self) -> list[str]:
        inside = [reason for reason in self.reasons if reason.inside]
        beyond = [reason for reason in self.reasons if not reason.inside]
        size = "1 label" if len(inside) == 1 else f"{len(inside)} labels"
        own = len({reason.threshold for reason in self.reasons}) > 1
        limit = "the label's own threshold" if own else f"{self.threshold:.6g}"
        lines = [f"record {self.record}: {size} with {self.score} <= {limit}"]
        for one in [*inside, *beyond[:_BEYOND]]:
            sign = "<=" if one.inside else "> "
            beside = f" {sign} {one.threshold:.6g}" if own else ""
            place = "in " if one.inside else "out"
            lines.append(f"  {one.label:>5}  {place}  {one.score:.6g}{beside}")
        rest = len(beyond) - _BEYOND
        return lines + ([f"  {rest} more are out, with higher scores"] if rest > 0 else [])

    def _interval_lines(self) -> list[str]:
        assert self.interval is not None
        low, high = self.interval
        given = ", ".join(f"{result:.6g}" for result in self.results)
        found = f"{low:.6g} to {high:.6g}"
        if math.isinf(low):
            found = "the whole line: at threshold 1 nothing is ruled out"
        elif low > high:
            found = "empty: the model's quantiles are farther apart than the threshold allows"
        return [
            f"record {self.record}: {found}",
            f"  the model says {given}; in are numbers with {self.score} <= {self.threshold:.6g}",
        ]


def explain_labels(
    score: Score, scores: NDArray[Any], *, threshold: ArrayLike
) -> list[RecordExplanation]:
    """Explain the set of every record from the scores of its labels.

    K thresholds are those of the labels, one each.
    """
    order = np.argsort(scores, axis=1, kind="stable")
    limits = np.broadcast_to(np.asarray(threshold, dtype=np.float64), scores.shape[1])
    highest = float(limits.max())
    return [
        RecordExplanation(
            record,
            score.text,
            highest,
            tuple(
                LabelReason(
                    label, float(row[label]), bool(row[label] <= limits[label]), limits[label]
                )
                for label in labels.tolist()
            ),
        )
        for record, (row, labels) in enumerate(zip(scores, order, strict=True))
    ]


def explain_intervals(
    score: Residual, results: ArrayLike, *, threshold: float
) -> list[RecordExplanation]:
    """Explain the interval of every record from what the model returned for it."""
    found = score.checked(results)
    low, high = score.interval(results, threshold)
    return [
        RecordExplanation(
            record,
            score.text,
            threshold,
            interval=(float(low[record]), float(high[record])),
            results=tuple(np.atleast_1d(found[record]).tolist()),
        )
        for record in range(len(found))
    ]
