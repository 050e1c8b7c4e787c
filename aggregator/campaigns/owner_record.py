"""Who answered each round of a campaign, and what each owner's reports say of the threshold.

The rows describe and prove nothing: the threshold was chosen by the same reports.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from confide.protocol.certificate import BY_OWNER, PLANNED_MIXTURE, Certificate, LocalCertificate
from confide.protocol.methods.base import Query, Tally
from confide.protocol.methods.parts import PartedTally, kept_apart

log = logging.getLogger(__name__)

# Fewer answers of an owner at the published threshold are not shown on their own.
LEAST_SHOWN = 100
# How often the bound of an owner may fail where the promise has no such probability.
DELTA_OF_AVERAGES = 0.1
# From this share on, owners that left are worth a warning.
WARNED = 0.05

Row = dict[str, Any]


@dataclass
class OwnerRecord:
    """The tallies of the rounds so far, of which owners are kept apart."""

    rounds: list[tuple[Query, PartedTally]] = field(default_factory=list)

    @classmethod
    def of(cls, rounds: Iterable[tuple[Query, Tally]]) -> Self:
        """The record of rounds that were counted before."""
        kept = ((query, kept_apart(tally)) for query, tally in rounds)
        return cls([(query, found) for query, found in kept if found is not None])

    def add(self, query: Query, tally: Tally) -> None:
        """Take in a round, and warn if owners of the first one have left."""
        found = kept_apart(tally)
        if found is None or query.kept_apart != BY_OWNER:
            return
        self.rounds.append((query, found))
        if self.departed:
            log.warning("confide: round %d: %s", len(self.rounds), self.departure)

    @property
    def keys(self) -> list[bytes]:
        """The owners that answered any round, in the order in which cards number them."""
        return sorted({key for _, tally in self.rounds for key in tally.keys})

    @property
    def left(self) -> float:
        """The share of the first round's reports whose owners are missing from the latest."""
        if not self.rounds:
            return 0.0
        (_, first), (_, last) = self.rounds[0], self.rounds[-1]
        every = sum(first.of(key).size for key in first.keys)
        return sum(first.of(key).size for key in set(first.keys) - set(last.keys)) / max(every, 1)

    @property
    def departed(self) -> bool:
        """Whether so many have left that it is worth a warning."""
        return self.left >= WARNED

    @property
    def missing(self) -> str:
        """How much of the first round is missing from the latest, in words."""
        return (
            f"owners of {self.left:.0%} of the reports of the first round did not answer the latest"
        )

    @property
    def departure(self) -> str:
        """What is left of the mixture of the first round, in words."""
        return (
            f"{self.missing}; what is certified from now on is the mixture of those that do, and "
            "says nothing of the planned one"
        )

    def rows(self, certificate: Certificate) -> list[Row]:
        """Every owner by number: its reports in each round, and its own lower bound of coverage.

        The bound fails with the certificate's delta, or 0.1 of an average, for the owner alone.
        Parts that a certificate tests have their evidence there.
        """
        rows: list[Row] = []
        for number, key in enumerate(self.keys, start=1):
            reports = [tally.of(key).size for _, tally in self.rounds]
            rows.append({"owner": str(number), "reports": reports})
            if not certificate.strata and certificate.threshold < 1:
                delta = LocalCertificate.of(certificate).delta or DELTA_OF_AVERAGES
                lower = self._lower(key, certificate.threshold, delta)
                rows[-1] |= {} if lower is None else {"lower_bound": lower}
        return rows

    def remark(self, certificate: Certificate) -> str | None:
        """What the card says of owners that left, unless the planned mixture was certified."""
        if not self.departed or PLANNED_MIXTURE in certificate.assumptions:
            return None
        return self.departure

    def _at(self, query: Query, tally: PartedTally, threshold: float) -> list[Any]:
        return [found for found in query.evidence(tally) if found.threshold == threshold]

    def _lower(self, key: bytes, threshold: float, delta: float) -> float | None:
        """The best of an owner's bounds in the rounds that say something of the threshold."""
        found = [
            tally.of(key).lower_bound(query, threshold, delta=delta)
            for query, tally in self.rounds
            if tally.of(key).size >= LEAST_SHOWN
        ]
        return max((one for one in found if one is not None), default=None)
