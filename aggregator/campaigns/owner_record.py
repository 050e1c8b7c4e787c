"""Who answered each round of a campaign, and what each owner's reports say of the threshold.

The rows describe and prove nothing: the threshold was chosen by the same reports.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from confide.protocol.certificate import BY_OWNER, Certificate, LocalCertificate, mixture_of
from confide.protocol.methods.base import Query, Tally
from confide.protocol.methods.parts import PartedTally, kept_apart
from confide.protocol.plan import Plan

log = logging.getLogger(__name__)

# Fewer answers of an owner at the published threshold are not shown on their own.
LEAST_SHOWN = 100
# How often the bound of an owner may fail where the promise has no such probability.
DELTA_OF_AVERAGES = 0.1
# From this share on, owners that left, or never came, are worth a warning.
WARNED = 0.05
# What is missing of a slice may be chance up to so many standard deviations.
CHANCE = 4.0

Row = dict[str, Any]


@dataclass(frozen=True)
class Departure:
    """The share of the first round's reports whose owners are missing from the latest.

    `absent` is the share of the reports that the plan expects of the first round which did not
    come: a campaign of one round has only these to tell of owners that are not in its mixture.
    """

    share: float
    absent: float = 0.0

    @property
    def matters(self) -> bool:
        """Whether so many have left, or never came, that it is worth a warning."""
        return self.has_left or self.never_came

    @property
    def has_left(self) -> bool:
        return self.share >= WARNED

    @property
    def never_came(self) -> bool:
        return self.absent >= WARNED

    @property
    def missing(self) -> str:
        """How much of the first round is missing from the latest, in words."""
        return (
            f"owners of {self.share:.0%} of the reports of the first round did not answer the "
            "latest"
        )

    @property
    def absence(self) -> str:
        """How much of what the plan expects never came, in words."""
        return (
            f"{self.absent:.0%} of the reports that the plan expects of the first round did not "
            "come; nothing is certified of owners that did not answer it"
        )

    def __str__(self) -> str:
        said = [self.absence] if self.never_came else []
        if self.has_left:
            said.append(
                f"{self.missing}; what is certified from now on is the mixture of those that do, "
                "and says nothing of the planned one"
            )
        return "; ".join(said)


def absent(came: int, *, plan: Plan, share: float) -> float:
    """The share of the reports expected of a slice that did not come; 0 where it may be chance.

    A record is in a slice with the probability that is the slice's share of the plan's records, of
    which the plan in turn may have a share of all.
    """
    expected = plan.expected_records * share
    short = expected - came
    low, high = plan.share or (0.0, 1.0)
    chance = CHANCE * math.sqrt(expected * (1 - share * (high - low)))
    return short / expected if short > chance else 0.0


class _Round(NamedTuple):
    """A round: the reports of every owner, and its tally if that keeps owners apart."""

    query: Query
    reports: Mapping[bytes, int]
    tally: PartedTally | None


@dataclass
class OwnerRecord:
    """The reports of every owner in the rounds so far, and what these say where it is kept.

    `plan` says which records are expected.
    """

    plan: Plan | None = None
    rounds: list[_Round] = field(default_factory=list)

    def add(self, query: Query, tally: Tally) -> None:
        """Take in a round, and warn if owners did not come, or those of the first one have left."""
        found = kept_apart(tally) if query.kept_apart == BY_OWNER else None
        reports = tally.senders
        if found is not None:
            reports = {key: found.of(key).size for key in found.keys}
        if not reports:
            return
        self.rounds.append(_Round(query, reports, found))
        if self.departure.has_left or (self.departure.never_came and len(self.rounds) == 1):
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
        """The owners that have left since the first round, and what never came."""
        if not self.rounds:
            return Departure(0.0)
        asked, first, last = self.rounds[0].query, self.rounds[0].reports, self.rounds[-1].reports
        left = sum(count for key, count in first.items() if not last.get(key))
        came = sum(first.values())
        never = 0.0
        if self.plan is not None:
            never = absent(came, plan=self.plan, share=float(asked.stop - asked.start))
        return Departure(left / max(came, 1), never)

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
        """What the card says of owners that never came, or left.

        A planned mixture has those that left all the same.
        """
        found = self.departure
        if mixture_of(certificate.assumptions):
            found = replace(found, share=0.0)
        return str(found) if found.matters else None

    def _lower(self, key: bytes, threshold: float, delta: float) -> float | None:
        """The best of an owner's bounds in the rounds that say something of the threshold."""
        found = [
            tally.of(key).lower_bound(query, threshold, delta=delta)
            for query, reports, tally in self.rounds
            if tally is not None and reports.get(key, 0) >= LEAST_SHOWN
        ]
        return max((one for one in found if one is not None), default=None)
