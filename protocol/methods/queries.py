"""What a calibration procedure asks and what it is told: the only things that pass between an
algorithm and its driver.

A record's position in [0, 1) is fixed by its owner (a keyed hash in a federation, a shuffle in
simulation). A query addresses a slice of positions; the slices of one campaign never overlap, so
every record answers at most once.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.certificate import Certificate
from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.kinds import Bit
from confide.protocol.errors import BadInput


@dataclass(frozen=True)
class BitQuery:
    """Ask the records of a slice for one randomised bit 1{S <= q}; the slice is cut evenly, a part
    to each threshold."""

    channel: Bit
    start: float
    stop: float
    thresholds: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_slice(self.start, self.stop)
        if not self.thresholds or not all(0 <= q <= 1 for q in self.thresholds):
            raise BadInput(
                f"thresholds are {self.thresholds}; accepted is at least one number, all in [0, 1]"
            )

    def part(self, positions: NDArray[np.float64]) -> NDArray[np.int64]:
        """The index of the threshold that each position of the slice is asked about."""
        count = len(self.thresholds)
        share = (positions - self.start) / (self.stop - self.start)
        return np.clip((share * count).astype(np.int64), 0, count - 1)


@dataclass(frozen=True)
class LabelQuery:
    """Ask the records of a slice for their label through a channel, together with their
    features."""

    channel: LabelChannel
    start: float = 0.0
    stop: float = 1.0

    def __post_init__(self) -> None:
        _check_slice(self.start, self.stop)


@dataclass(frozen=True)
class BitTally:
    """For every threshold of a query: how many answers arrived, and how many of them were one."""

    answers: tuple[int, ...]
    ones: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.answers) != len(self.ones) or not all(
            0 <= k <= n for k, n in zip(self.ones, self.answers, strict=True)
        ):
            raise BadInput(
                f"tally of {self.answers} answers with {self.ones} ones; ones must lie between 0 "
                "and the answers"
            )


@dataclass(frozen=True)
class LabelTally:
    """The reports of a label query and the scores of every label for their features, in an order
    independent of both."""

    scores: NDArray[Any]
    reports: NDArray[Any]

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or len(self.scores) != len(self.reports):
            raise BadInput(
                f"scores of shape {self.scores.shape} with {len(self.reports)} reports; accepted "
                "is a row a report"
            )


@dataclass(frozen=True)
class HistogramQuery:
    """Ask every owner for the exact counts of its scores on a uniform grid."""

    bins: int


@dataclass(frozen=True)
class CountQuery:
    """Ask every owner how many of its scores are at or below a threshold, with noise of the owner's
    own."""

    threshold: float
    variance: int

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1 or self.variance < 1:
            raise BadInput(
                f"threshold {self.threshold}, variance {self.variance}; accepted are [0, 1] and at "
                "least 1"
            )


@dataclass(frozen=True)
class HistogramTally:
    """The counts of all owners that answered, added up, and the number of records of each."""

    counts: NDArray[np.int64]
    owners: int
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class CountTally:
    """Every owner's number of records and noised count, by its id in this campaign."""

    answers: dict[bytes, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class TrainingQuery:
    """Ask every owner to go on from these weights for its steps of the round."""

    weights: NDArray[np.float32]


@dataclass(frozen=True)
class TrainingTally:
    """The weights of every owner that answered."""

    weights: list[NDArray[np.float32]]


CentralQuery = HistogramQuery | CountQuery
# Queries that an owner answers as a whole, not record by record.
OwnerQuery = CentralQuery | TrainingQuery
Query = BitQuery | LabelQuery | OwnerQuery
Tally = BitTally | LabelTally | HistogramTally | CountTally | TrainingTally
HistogramProcedure = Generator[HistogramQuery, HistogramTally, Certificate]
CountProcedure = Generator[CountQuery, CountTally, Certificate]
BitProcedure = Generator[BitQuery, BitTally, Certificate]
LabelProcedure = Generator[LabelQuery, LabelTally, Certificate]


def _check_slice(start: float, stop: float) -> None:
    if not 0 <= start < stop <= 1:
        raise BadInput(f"slice is [{start}, {stop}); accepted is 0 <= start < stop <= 1")
