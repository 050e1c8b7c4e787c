"""Queries for counts of scores: exact histograms, or single counts that every owner noises."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.certificate import CentralCertificate
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.grids import UNIFORM, bin_indices, grid_edges
from confide.protocol.methods.base import Batch, Columns, ReportScores, Tally, WholeQuery
from confide.protocol.methods.partition import Partition
from confide.protocol.methods.subjects import Subjects
from confide.protocol.methods.thresholds import CountEvidence, check_thresholds
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import I8, Array, column
from confide.protocol.wire.encoding import parse, serialise

# The number of standard deviations by which a noised count may lie outside the range of counts.
DEVIATIONS = 8


@dataclass(frozen=True)
class HistogramTally(Tally):
    """The summed counts of all owners that answered, and the number of records of each.

    Where parts of the records are counted apart, there is a row for every part, and a last one for
    records that are in none.
    """

    counts: NDArray[np.int64]
    owners: int
    sizes: tuple[int, ...] = ()

    def owner_sizes(self) -> list[int]:
        return list(self.sizes)


@dataclass(frozen=True)
class CountTally(Tally):
    """Every owner's number of records and noised count, by sender."""

    answers: dict[bytes, tuple[int, int]]

    def owner_sizes(self) -> list[int]:
        return [size for size, _ in self.answers.values()]

    def to_json(self) -> Any:
        return {"owners": {name.hex(): pair for name, pair in self.answers.items()}}


class Counting(WholeQuery):
    """The part that both count queries share: answers are rows of integers."""

    def pack(self, columns: Columns) -> bytes:
        return serialise(wire.Counts(counts=columns["counts"].astype(I8).tobytes()))

    def unpack(self, body: bytes, n: int) -> Columns:
        message = wire.Counts.FromString(body)
        return {"counts": np.frombuffer(message.counts, dtype=I8).astype(np.int64)[None, :]}


def check_owned(counts: Array, most: int) -> None:
    """Refuse numbers of records that an owner of at most `most` records cannot have."""
    if counts.min() < 0 or counts.max() > most or int(counts.sum()) > most:
        raise Refused(wire.Code.OUT_OF_ALPHABET)


@dataclass(frozen=True)
class HistogramQuery(Counting):
    """Ask every owner for the exact counts of its scores on a public grid.

    With a `key` there are counts for each part of the records.
    """

    bins: int
    grid: str = UNIFORM
    given_edges: tuple[float, ...] = ()
    key: Partition | None = None

    @property
    def rows(self) -> int:
        """The parts that are counted; records in none are counted too, as the last one."""
        return 1 if self.key is None else len(self.key.names) + 1

    def to_body(self) -> bytes:
        return serialise(wire.CountQuery())

    def count(self, scores: Array, parts: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return how many of the scores fall into each bin, of each part if these are given."""
        edges = grid_edges(self.grid, self.bins, self.given_edges)
        bins = bin_indices(scores, edges)
        if parts is not None:
            # NO_PART is the number of the last row, from the end.
            bins = parts % self.rows * self.bins + bins
        return np.bincount(bins, minlength=self.rows * self.bins)

    def shaped(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return counts with a row for each part, if parts are counted apart."""
        return counts if self.key is None else counts.reshape(self.rows, self.bins)

    def answer(self, subjects: Subjects) -> Columns:
        parts = None if self.key is None else self.key.places(subjects)
        return {"counts": self.count(subjects.scores(), parts)}

    def check(self, body: bytes, n: int, *, most: int) -> None:
        counts = column(parse(wire.Counts, body).counts, I8, self.rows * self.bins)
        check_owned(counts, most)
        # Only records of the plan's groups take part.
        if self.key is not None and self.key.public and counts[-self.bins :].any():
            raise Refused(wire.Code.OUT_OF_ALPHABET)

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> HistogramTally:
        total = np.zeros(self.rows * self.bins, dtype=np.int64)
        for batch in batches:
            total += batch.columns["counts"][0]
        sizes = tuple(int(batch.columns["counts"].sum()) for batch in batches)
        return HistogramTally(self.shaped(total), len(batches), sizes)


@dataclass(frozen=True)
class CountQuery(Counting):
    """Ask every owner for the noised number of its scores at or below a threshold.

    Every owner adds its own noise.
    """

    threshold: float
    variance: int

    def __post_init__(self) -> None:
        check_thresholds((self.threshold,))
        if self.variance < 1:
            raise BadInput(f"variance is {self.variance}; accepted is at least 1")

    def to_body(self) -> bytes:
        return serialise(wire.CountQuery(threshold=self.threshold))

    def answer(self, subjects: Subjects) -> Columns:
        count = np.count_nonzero(subjects.scores() <= self.threshold)
        noise = discrete_gaussian(Fraction(self.variance), 1, subjects.entropy)[0]
        return {"counts": np.array([len(subjects), count + noise])}

    def check(self, body: bytes, n: int, *, most: int) -> None:
        """Accept a noised count of n records only within [-8 sigma, n + 8 sigma].

        An honest count lies outside with probability below 2 e^-32, 3e-14 (discrete Gaussians are
        sub-Gaussian, Canonne, Kamath, Steinke 2020).
        """
        counts = column(parse(wire.Counts, body).counts, I8, 2)
        check_owned(counts[:1], most)
        size, count = (int(number) for number in counts)
        beyond = max(-count, count - size, 0)
        if beyond**2 > DEVIATIONS**2 * self.variance:
            raise Refused(wire.Code.OUT_OF_ALPHABET)

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> CountTally:
        found = {batch.sender: batch.columns["counts"][0] for batch in in_order(batches)}
        return CountTally({name: (int(pair[0]), int(pair[1])) for name, pair in found.items()})

    def tally_from_json(self, values: Any) -> CountTally:
        pairs = values["owners"].items()
        return CountTally({bytes.fromhex(name): (pair[0], pair[1]) for name, pair in pairs})

    def evidence(self, tally: CountTally | None) -> list[CountEvidence]:
        pairs = list(tally.answers.values()) if tally else []
        n, count = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        return [CountEvidence(self.threshold, n, count, self.variance * len(pairs))]


def in_order(batches: Sequence[Batch]) -> list[Batch]:
    """Sort batches by the ids that owners give, so that the order does not depend on arrival."""
    return sorted(batches, key=lambda batch: (batch.ids.tobytes(), batch.sender))


HistogramProcedure = Generator[HistogramQuery, HistogramTally, CentralCertificate]
CountProcedure = Generator[CountQuery, CountTally, CentralCertificate]
