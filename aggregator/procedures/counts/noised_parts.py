"""A threshold for each class or group, from counts that every owner has noised.

All parts are searched at once: a round asks one threshold of every part, and each goes on as the
search for one threshold does (`central.noised_search`). The number of records of a group is public.
That of a class is not: a first round counts it with noise, and the rank is that of a number which
is not below the true one, except with the probability of one more step. Replacing a record moves
the counts of two classes in every round, so the noise of all rounds pays for both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from confide.aggregator.procedures.counts.central import (
    CentralResult,
    Ranked,
    counted_rank,
    noise_offset,
    searched_rank,
)
from confide.protocol.certificate import NOT_STATED, CentralCertificate, CountedPart
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.noised_parts import (
    PartCountProcedure,
    PartCountQuery,
    PartCounts,
    PartCountTally,
)

FEW = (
    "no count below the top of the grid was high enough: too few records for this epsilon and so "
    "many owners"
)


@dataclass
class _Search:
    """The search of one part: the threshold lies above the bin `left`, and at most at `right`."""

    right: int
    left: int = -1
    n: int | None = None
    rank: int | None = None
    reason: str | None = None

    @property
    def going(self) -> bool:
        return self.rank is not None and self.right - self.left > 1

    @property
    def middle(self) -> int:
        """The bin that is asked next; the one that was found once the search has ended."""
        return (self.left + self.right) // 2 if self.right - self.left > 1 else self.right

    def move(self, count: int, *, needed: int) -> None:
        """Move an end to the bin that was asked."""
        if self.going and count >= needed:
            self.right = self.middle
        elif self.going:
            self.left = self.middle


def noised_parts(terms: CentralTerms, *, alpha: float) -> PartCountProcedure:
    """Search a threshold for every part, and return the certificate of all.

    An owner that stops answering makes thresholds larger, never too small.
    """
    campaign = _Campaign(terms, alpha)
    campaign.begin((yield campaign.query(sizes=campaign.private)))
    while any(one.going for one in campaign.searches):
        campaign.take((yield campaign.query()))
    return campaign.certificate()


class _Campaign:
    """The searches of all parts, and the owners of the first round, whose records are counted."""

    def __init__(self, terms: CentralTerms, alpha: float) -> None:
        assert terms.key is not None
        self._terms, self._alpha, self._key = terms, alpha, terms.key
        self.private = not terms.key.public
        self.searches = [_Search(terms.bins - 1) for _ in terms.key.names]
        self.enrolled: dict[bytes, tuple[int, tuple[int, ...]]] = {}
        self._complete = True

    @property
    def n(self) -> int:
        return sum(records for records, _ in self.enrolled.values())

    def _offset(self, owners: int) -> int:
        """What the owners' noise exceeds in no count of a part, except with probability beta."""
        return noise_offset(
            self._terms.noise_variance, owners, self._terms.beta / self._terms.rounds
        )

    def query(self, *, sizes: bool = False) -> PartCountQuery:
        """Ask every search's bin; or the top of the grid, below which all records of a part are."""
        bins = [self._terms.bins - 1 if sizes else one.middle for one in self.searches]
        asked = tuple(float(self._terms.edges[bin_]) for bin_ in bins)
        return PartCountQuery(asked, self._terms.noise_variance, self._key)

    def begin(self, tally: PartCountTally) -> None:
        """Take in the first round: whose records are counted, and the rank of every part."""
        found = tally.answers
        self.enrolled = {name: (one.records, one.sizes) for name, one in found.items()}
        if self.private:
            for place, one in enumerate(self.searches):
                count = sum(own.counts[place] for own in found.values())
                one.rank, one.reason = self._private_rank(count + self._offset(len(found)))
            return
        for place, one in enumerate(self.searches):
            one.n = sum(own.sizes[place] for own in found.values())
            one.rank, one.reason = self._rank(one.n)
        self.take(tally)

    def _private_rank(self, most: int) -> Ranked:
        """The rank of a class that has at most so many records, and no more than there are."""
        if not self.n:
            return None, "no records were counted"
        level = 1 - Fraction(str(self._alpha)) + Fraction(str(self._terms.beta))
        return math.ceil((min(max(most, 0), self.n) + 1) * level), None

    def _rank(self, n: int) -> Ranked:
        return counted_rank(n, lambda: searched_rank(self._terms, n=n, alpha=self._alpha))

    def take(self, tally: PartCountTally) -> None:
        """Move every search by the counts of the owners that count the records they began with."""
        same = [
            one
            for name, one in tally.answers.items()
            if self.enrolled.get(name) == (one.records, one.sizes)
        ]
        self._complete &= len(same) == len(self.enrolled)
        for place, one in enumerate(self.searches):
            self._move(one, same, place)

    def _move(self, one: _Search, same: Sequence[PartCounts], place: int) -> None:
        if one.rank is not None:
            count = sum(own.counts[place] for own in same) if same else -1
            one.move(count, needed=one.rank + self._offset(len(same)))

    def _part(self, name: str, one: _Search) -> CountedPart:
        threshold = float(self._terms.edges[one.right])
        reason = one.reason or (FEW if one.right == self._terms.bins - 1 else None)
        known = not self.private and one.rank is not None and self._complete
        return CountedPart(
            name=name,
            threshold=threshold,
            reason=reason,
            bin=one.right,
            n=None if self.private else one.n or 0,
            rank=None if self.private else one.rank,
            inflation=2 * self._offset(len(self.enrolled)) if known else None,
        )

    def certificate(self) -> CentralCertificate:
        """The certificate of all parts; its rank and inflation are of a part with all records."""
        terms, pairs = self._terms, zip(self._key.names, self.searches, strict=True)
        strata = tuple(self._part(name, one) for name, one in pairs)
        rank, _ = self._rank(self.n)
        highest = max(strata, key=lambda one: one.bin)
        trivial = min(one.threshold for one in strata) >= 1
        made = CentralResult(
            terms,
            alpha=self._alpha,
            epsilon=terms.noise_epsilon,
            n=self.n,
            owners=len(self.enrolled),
        ).certificate(
            bin_=highest.bin,
            reason=f"no {terms.by} has a threshold below 1: {FEW}" if trivial else None,
            rank=rank,
            inflation=self._inflation() if rank is not None and self._complete else None,
            randomness=NOT_STATED,
        )
        return replace(made, by=terms.by, strata=strata)

    def _inflation(self) -> int:
        """How many ranks too high a search ends at most: by the noise of a count, twice.

        That of the number of records of a class does the same to the rank.
        """
        return (4 if self.private else 2) * self._offset(len(self.enrolled))
