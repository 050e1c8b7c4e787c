"""Counts of every class or group, one threshold each, that every owner noises."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.protocol.certificate import CentralCertificate
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.base import Batch, Columns, ReportScores, Tally
from confide.protocol.methods.counts.queries import (
    DEVIATIONS,
    Counting,
    check_owned,
    in_order,
)
from confide.protocol.methods.partition import Partition
from confide.protocol.methods.subjects import Subjects
from confide.protocol.methods.thresholds import check_thresholds
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import I8, Array, column
from confide.protocol.wire.encoding import parse, serialise


class PartCounts(NamedTuple):
    """An owner's records in all and, if these are public, of each part; and its noised counts."""

    records: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class PartCountTally(Tally):
    """The answers of all owners, by sender."""

    answers: dict[bytes, PartCounts]

    def owner_sizes(self) -> list[int]:
        return [one.records for one in self.answers.values()]

    def to_json(self) -> Any:
        return {"owners": {name.hex(): list(one) for name, one in self.answers.items()}}


@dataclass(frozen=True)
class PartCountQuery(Counting):
    """Ask every owner for the noised number of its scores at or below the threshold of their part.

    Every owner adds its own noise to every count.
    """

    thresholds: tuple[float, ...]
    variance: int
    key: Partition

    def __post_init__(self) -> None:
        check_thresholds(self.thresholds)
        if len(self.thresholds) != len(self.key.names):
            raise BadInput(
                f"{len(self.thresholds)} thresholds for {len(self.key.names)} parts; accepted is "
                "one each"
            )

    @property
    def _sized(self) -> int:
        """How many parts have a public number of records."""
        return len(self.key.names) if self.key.public else 0

    def to_body(self) -> bytes:
        return serialise(wire.CountQuery(thresholds=self.thresholds))

    def counted(self, scores: Array, parts: NDArray[np.int64], entropy: Entropy) -> Array:
        """Return the answer of an owner with these scores in these parts."""
        each = len(self.thresholds)
        limits = np.array([*self.thresholds, -1.0])
        below = (scores <= limits[parts]) & (parts >= 0)
        counts = np.bincount(parts[below], minlength=each)
        noise = discrete_gaussian(Fraction(self.variance), each, entropy)
        sizes = np.bincount(parts[parts >= 0], minlength=each)[: self._sized]
        return np.concatenate([[len(scores)], sizes, counts + noise]).astype(np.int64)

    def answer(self, subjects: Subjects) -> Columns:
        parts = self.key.places(subjects)
        return {"counts": self.counted(subjects.scores(), parts, subjects.entropy)}

    def check(self, body: bytes, n: int, *, most: int) -> None:
        """Accept a noised count of n records only within [-8 sigma, n + 8 sigma], as for one."""
        each, sized = len(self.thresholds), self._sized
        found = column(parse(wire.Counts, body).counts, I8, 1 + sized + each).astype(np.int64)
        check_owned(found[:1], most)
        if sized:
            check_owned(found[1 : 1 + sized], int(found[0]))
            # Only records of the plan's groups take part.
            if int(found[1 : 1 + sized].sum()) != int(found[0]):
                raise Refused(wire.Code.OUT_OF_ALPHABET)
        sizes = found[1 : 1 + sized] if sized else found[0]
        counts = found[1 + sized :]
        beyond = np.maximum(np.maximum(-counts, counts - sizes), 0).astype(np.float64)
        if (beyond**2 > DEVIATIONS**2 * self.variance).any():
            raise Refused(wire.Code.OUT_OF_ALPHABET)

    def read(self, row: Array) -> PartCounts:
        """Return an owner's answer from its numbers."""
        values, sized = [int(value) for value in row], self._sized
        return PartCounts(values[0], tuple(values[1 : 1 + sized]), tuple(values[1 + sized :]))

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> PartCountTally:
        found = {batch.sender: batch.columns["counts"][0] for batch in in_order(batches)}
        return PartCountTally({name: self.read(row) for name, row in found.items()})

    def tally_from_json(self, values: Any) -> PartCountTally:
        return PartCountTally(
            {
                bytes.fromhex(name): PartCounts(records, tuple(sizes), tuple(counts))
                for name, (records, sizes, counts) in values["owners"].items()
            }
        )


PartCountProcedure = Generator[PartCountQuery, PartCountTally, CentralCertificate]
