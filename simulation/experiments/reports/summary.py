"""What the trials of each cell say together: means with confidence intervals."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from confide.simulation.evaluate.repeated import Row

# The confidence of every interval that is drawn or printed.
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An estimate, and the interval that holds the truth with the confidence above."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class CellSummary:
    """A cell and its measures; those that its trials do not have are None.

    `below` are the trials whose coverage was below the level they certified: with a PAC promise at
    most the failure probability of them, in expectation, beside the noise of the test records.
    """

    row: Row
    trials: int
    coverage: Interval | None
    size: Interval | None
    level: float | None
    trivial: Interval | None
    below: int
    epsilon: float | None
    shuffled: float | None
    least_owner: float | None
    reason: str | None

    @property
    def line(self) -> str:
        """What a line of a picture is called."""
        return f"{self.row['method']} {self.row['score']}"


def summaries(rows: Iterable[Row]) -> list[CellSummary]:
    """A summary of every cell, in the order of the file."""
    ordered = sorted(rows, key=lambda row: (row["cell"], row["trial"]))
    return [_summary(list(group)) for _, group in groupby(ordered, key=lambda row: row["cell"])]


def _summary(rows: list[Row]) -> CellSummary:
    ran = [row for row in rows if row["coverage"] is not None]
    reasons = [row["reason"] for row in rows if row["reason"]]
    return CellSummary(
        row=rows[0],
        trials=len(rows),
        coverage=mean_interval(_values(ran, "coverage"), most=1.0),
        size=mean_interval(_values(ran, "mean_size")),
        level=_mean(_values(ran, "certified_level")),
        trivial=share_interval(sum(row["trivial"] for row in ran), len(ran)),
        below=sum(row["coverage"] < (row["certified_level"] or 0.0) for row in ran),
        epsilon=_mean(_values(ran, "exact_epsilon")),
        shuffled=max(_values(ran, "shuffle_epsilon"), default=None),
        least_owner=_mean(_values(ran, "least_owner_coverage")),
        reason=max(reasons, key=reasons.count, default=None),
    )


def _values(rows: list[Row], name: str) -> list[float]:
    return [float(row[name]) for row in rows if row[name] is not None]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def mean_interval(
    values: list[float], *, least: float = 0.0, most: float = math.inf
) -> Interval | None:
    """The mean of independent trials with its interval by Student's t; no width for one trial.

    The interval is cut to the values that are possible, from `least` to `most`.
    """
    from scipy.stats import t

    if not values:
        return None
    n, mean = len(values), sum(values) / len(values)
    if n == 1:
        return Interval(mean, mean, mean)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(t.ppf((1 + CONFIDENCE) / 2, n - 1)) * deviation / math.sqrt(n)
    return Interval(mean, max(least, mean - half), min(most, mean + half))


def share_interval(count: int, n: int) -> Interval | None:
    """A share of n trials with its exact interval (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    if not n:
        return None
    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, count, n - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, n - count)) if count < n else 1.0
    return Interval(count / n, low, high)


def text(value: Any, digits: int = 3) -> str:
    """A number, or an interval, as tables print it."""
    if value is None:
        return "-"
    if isinstance(value, Interval):
        half = max(value.high - value.middle, value.middle - value.low)
        return f"{value.middle:.{digits}f} ± {half:.{digits}f}"
    return f"{value:.{digits}f}"
