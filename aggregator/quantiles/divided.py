"""One release for each part of the records, kept together so that all are drawn once.

The parts are disjoint, so one record more or less changes the counts of one of them, and all
releases together cost what one does. A record that is replaced by another may leave one part for
another: the counts of both change, each by a record, and the releases of the two are independent.
So both together cost the sum of two such losses, and where parts are private each release has half
of epsilon and of delta, as one record more or less: number of records and rank are then secrets of
the part. Where the part of a record is public, the record that takes its place is in the same part,
whose number of records stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confide.aggregator.quantiles.base import ADD_REMOVE, Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy


@dataclass(frozen=True)
class PartReleases:
    """The releases of all parts, in the order of the parts."""

    parts: tuple[Release, ...]


@dataclass(frozen=True)
class DividedMechanism:
    """A mechanism that releases a threshold for each part of the records."""

    mechanism: Mechanism

    def release(
        self, histograms: Sequence[Histogram], ranks: Sequence[int], entropy: Entropy
    ) -> PartReleases:
        """Draw one release after the other, independently."""
        pairs = zip(histograms, ranks, strict=True)
        return PartReleases(
            tuple(self.mechanism.release(one, rank, entropy) for one, rank in pairs)
        )

    def read(self, values: dict[str, Any], ranks: Sequence[int]) -> PartReleases:
        """Read releases that were stored, of this mechanism at these ranks."""
        stored = values["parts"]
        if len(stored) != len(ranks):
            raise BadInput(f"{len(stored)} releases for {len(ranks)} parts; accepted is one each")
        pairs = zip(stored, ranks, strict=True)
        return PartReleases(tuple(self.mechanism.read(one, rank) for one, rank in pairs))

    def observed(
        self, histograms: Sequence[Histogram], ranks: Sequence[int], releases: PartReleases
    ) -> dict[str, float]:
        """The largest of what is observed of a part, for an auditor."""
        found = [
            self.mechanism.observed(*each)
            for each in zip(histograms, ranks, releases.parts, strict=True)
        ]
        names = found[0] if found else {}
        return {name: max(one[name] for one in found) for name in names}


def private_parts(mechanism: type[Mechanism]) -> None:
    """Refuse a mechanism whose proof needs the number of records of a part to be public."""
    if ADD_REMOVE not in mechanism.adjacencies:
        raise BadInput(
            f"mechanism is {mechanism.name} with by class; the number of records of a class is "
            f"private, so accepted is one whose proof covers {ADD_REMOVE}"
        )
