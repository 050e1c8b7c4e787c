"""Central calibration with a threshold for each class, or for each group that the plan names.

Every owner sends a histogram of each part, and the histograms are summed.

Classes are private: no rank, reason or card may tell how many records a class has. The release of a
class aims at a rank that its own number of records decides. One changed label moves a record from
one class to another, so each release has half of the budget and protects one record more or less
(`quantiles/divided`). A class with too few records gets the top of the grid, as the mechanism draws
it.

Groups are public: each has a release at the whole budget, at the rank of its own records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from confide.aggregator.procedures.counts.central import (
    CentralResult,
    Draw,
    Ranked,
    counted_rank,
    owner_noised,
    planned_rank,
    top_reason,
    trusted,
)
from confide.aggregator.procedures.counts.noised_parts import noised_parts
from confide.aggregator.quantiles.base import ADD_REMOVE, REPLACE_ONE, Mechanism, Release
from confide.aggregator.quantiles.divided import DividedMechanism, PartReleases, private_parts
from confide.aggregator.quantiles.histogram import Histogram
from confide.aggregator.quantiles.registry import MECHANISMS, certified_names, within_budget
from confide.protocol.certificate import CentralCertificate, CountedPart
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.noised_parts import PartCountProcedure
from confide.protocol.methods.counts.queries import CountProcedure, HistogramProcedure
from confide.protocol.plan import Plan

FEW = "too few records for this epsilon"


def of_plan(plan: Plan, draw: Draw) -> HistogramProcedure | CountProcedure | PartCountProcedure:
    """Make the procedure of a plan of this method; `draw` makes a trusted release and keeps it."""
    terms = CentralTerms.of(plan.terms)
    if not terms.shows_exact_counts:
        return (noised_parts if terms.by else owner_noised)(terms, alpha=plan.alpha)
    make = by_part if terms.by else trusted
    return make(terms, alpha=plan.alpha, draw=draw)


def by_part(terms: CentralTerms, *, alpha: float, draw: Draw) -> HistogramProcedure:
    """Sum the histograms of every part, and release a threshold for each."""
    assert terms.key is not None
    parts = _Parts(terms, part_mechanism(terms), alpha)
    # A mechanism that no number of records would satisfy is refused before anybody is asked.
    parts.wanted(0)
    tally = yield terms.histogram_query
    rows = [Histogram(counts, terms.edges) for counts in tally.counts[: len(terms.key.names)]]
    ranked = [parts.wanted(one.n) for one in rows]
    asked = [(one, rank) for one, (rank, _) in zip(rows, ranked, strict=True) if rank is not None]
    drawn: PartReleases = PartReleases(())
    if asked:
        histograms, ranks = zip(*asked, strict=True)
        drawn = draw(DividedMechanism(parts.mechanism), histograms, ranks)
    left = iter(drawn.parts)
    strata = [
        parts.made(name, one, None if rank is None else next(left), reason=reason)
        for name, one, (rank, reason) in zip(terms.key.names, rows, ranked, strict=True)
    ]
    n = int(tally.counts.sum())
    randomness = {release.randomness for release in drawn.parts} or {OPERATING_SYSTEM}
    return _together(parts, strata, n=n, owners=tally.owners, randomness=max(randomness))


def part_mechanism(terms: CentralTerms) -> Mechanism:
    """The mechanism of one part, at its share of the budget."""
    check_choice(f"mechanism of {terms.variant}", terms.mechanism, certified_names())
    private = terms.moved > 1
    if private:
        private_parts(MECHANISMS[terms.mechanism])
    return within_budget(
        terms.mechanism,
        bins=terms.bins,
        beta=terms.beta,
        adjacency=ADD_REMOVE if private else REPLACE_ONE,
        epsilon=terms.epsilon / terms.shares,
        delta=terms.privacy_delta / terms.shares,
    )


def private_rank(mechanism: Mechanism, *, n: int, alpha: float) -> int:
    """The rank of n records whose number is private: it exists for every n.

    With a beta it is ceil((n + 1)(1 - alpha + beta)). From n to n + 1 it rises by 0 or 1, which is
    what the proof for one record more or less needs.
    """
    if mechanism.beta is None:
        return mechanism.averaged_rank(n=n, alpha=alpha)
    level = 1 - Fraction(str(alpha)) + Fraction(str(mechanism.beta))
    if level >= 1:
        raise BadInput(
            f"beta is {mechanism.beta} and alpha {alpha}; beta must be below alpha, of which it is "
            "a part"
        )
    return math.ceil((n + 1) * level)


@dataclass(frozen=True)
class _Parts:
    """What all parts of a campaign have in common."""

    terms: CentralTerms
    mechanism: Mechanism
    alpha: float

    @property
    def private(self) -> bool:
        return self.mechanism.adjacency == ADD_REMOVE

    def wanted(self, n: int) -> Ranked:
        """The rank of a part with n records; a public number may have none, with a reason."""
        if self.private:
            return private_rank(self.mechanism, n=n, alpha=self.alpha), None
        return counted_rank(
            n, lambda: planned_rank(self.mechanism, self.terms, n=n, alpha=self.alpha)
        )

    def made(
        self, name: str, counts: Histogram, release: Release | None, *, reason: str | None
    ) -> CountedPart:
        """The part of this name; only its release depends on private counts."""
        if release is None:
            last = self.terms.bins - 1
            return CountedPart(name=name, threshold=1.0, reason=reason, bin=last, n=counts.n)
        threshold = float(self.terms.edges[release.bin])
        part = CountedPart(
            name=name, threshold=threshold, reason=top_reason(release), bin=release.bin
        )
        if self.private:
            return part
        return replace(part, n=counts.n, rank=release.rank, inflation=release.inflation)


def _together(
    parts: _Parts, strata: Sequence[CountedPart], *, n: int, owners: int, randomness: str
) -> CentralCertificate:
    """The certificate of all parts; its rank and inflation are of a part that had all records."""
    terms, mechanism = parts.terms, parts.mechanism
    rank, _ = parts.wanted(n)
    known = rank is not None and rank <= n
    epsilon = mechanism.privacy.epsilon_at(terms.privacy_delta / terms.shares) * terms.shares
    highest = max(strata, key=lambda one: one.bin)
    trivial = min(one.threshold for one in strata) >= 1
    made = CentralResult(terms, alpha=parts.alpha, epsilon=epsilon, n=n, owners=owners).certificate(
        bin_=highest.bin,
        reason=f"no {terms.by} has a threshold below 1: {FEW}" if trivial else None,
        rank=rank if known else None,
        inflation=mechanism.inflation(n=n, rank=rank) if known and rank is not None else None,
        randomness=randomness,
    )
    return replace(made, by=terms.by, strata=tuple(strata))
