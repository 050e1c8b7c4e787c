"""Who answered each round of a campaign, and what each owner's reports say of the threshold.

The rows describe and prove nothing: the threshold was chosen by the same reports.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


@dataclass(frozen=True)
class Departure:
    """The share of the first round's reports whose owners are missing from the latest."""

    share: float

    @property
    def matters(self) -> bool:
        """Whether so many have left that it is worth a warning."""
        return self.share >= WARNED

    @property
    def missing(self) -> str:
        """How much of the first round is missing from the latest, in words."""
        return (
            f"owners of {self.share:.0%} of the reports of the first round did not answer the "
            "latest"
        )

    def __str__(self) -> str:
        return (
            f"{self.missing}; what is certified from now on is the mixture of those that do, and "
            "says nothing of the planned one"
        )


class _Round(NamedTuple):
    """A round: the reports of every owner, and its tally if that keeps owners apart."""

    query: Query
    reports: Mapping[bytes, int]
    tally: PartedTally | None


@dataclass
class OwnerRecord:
    """The reports of every owner in the rounds so far, and what these say where it is kept."""

    rounds: list[_Round] = field(default_factory=list)

    def add(self, query: Query, tally: Tally) -> None:
        """Take in a round, and warn if owners of the first one have left."""
        found = kept_apart(tally) if query.kept_apart == BY_OWNER else None
        reports = tally.senders
        if found is not None:
            reports = {key: found.of(key).size for key in found.keys}
        if not reports:
            return
        self.rounds.append(_Round(query, reports, found))
        if self.departure.matters:
            log.warning("confide: round %d: %s", len(self.rounds), self.departure)

    @property
    def keys(self) -> list[bytes]:
        """The owners that answered any round, in the order in which cards number them."""
        return sorted({key for one in self.rounds for key in one.reports})

    @property
    def sizes(self) -> list[int]:
        """The reports of each of them in all rounds; nothing if nobody knows whose they are."""
        return [sum(one.reports.get(key, 0) for one in self.rounds) for key in self.keys]

    @property
    def departure(self) -> Departure:
        """The owners that have left since the first round."""
        if not self.rounds:
            return Departure(0.0)
        first, last = self.rounds[0].reports, self.rounds[-1].reports
        left = sum(count for key, count in first.items() if not last.get(key))
        return Departure(left / max(sum(first.values()), 1))

    def rows(self, certificate: Certificate) -> list[Row]:
        """Every owner by number: its reports in each round, and its own lower bound of coverage.

        The bound fails with the certificate's delta, or 0.1 of an average, for the owner alone.
        Parts that a certificate tests have their evidence there.
        """
        rows: list[Row] = []
        for number, key in enumerate(self.keys, start=1):
            reports = [one.reports.get(key, 0) for one in self.rounds]
            rows.append({"owner": str(number), "reports": reports})
            if not certificate.strata and certificate.threshold < 1:
                delta = LocalCertificate.of(certificate).delta or DELTA_OF_AVERAGES
                lower = self._lower(key, certificate.threshold, delta)
                rows[-1] |= {} if lower is None else {"lower_bound": lower}
        return rows

    def remark(self, certificate: Certificate) -> str | None:
        """What the card says of owners that left, unless the planned mixture was certified."""
        if not self.departure.matters or PLANNED_MIXTURE in certificate.assumptions:
            return None
        return str(self.departure)

    def _lower(self, key: bytes, threshold: float, delta: float) -> float | None:
        """The best of an owner's bounds in the rounds that say something of the threshold."""
        found = [
            tally.of(key).lower_bound(query, threshold, delta=delta)
            for query, reports, tally in self.rounds
            if tally is not None and reports.get(key, 0) >= LEAST_SHOWN
        ]
        return max((one for one in found if one is not None), default=None)
