"""Central calibration: counts from owners, one private threshold, coverage 1 - alpha.

There are two trust settings. *Trusted*: owners send exact histograms, which are summed, and a
mechanism releases once. *Owner-noised*: nobody is trusted with exact counts; every owner adds
discrete Gaussian noise to every count it answers, and a bisection runs on the sums. Adjacency is
replace-one: the number of records of each owner is public.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from confide.aggregator.quantiles.base import REPLACE_ONE, Mechanism, Release
from confide.aggregator.quantiles.histogram import (
    Histogram,
    certified_rank,
    check_rank,
    tail_rank,
)
from confide.aggregator.quantiles.registry import certified_names, within_budget
from confide.protocol.certificate import (
    MARGINAL_ASSUMPTIONS,
    NOT_STATED,
    PAC_ASSUMPTIONS,
    CentralCertificate,
)
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.grids import Floats
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.base import MOST_RECORDS
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.queries import (
    CountProcedure,
    CountQuery,
    CountTally,
    HistogramProcedure,
)

# Procedures draw a release through this function, so that the driver can keep it: a retry must
# never draw again. It is given a mechanism, a histogram and a rank, and returns a release; or a
# divided mechanism with those of every part.
Draw = Callable[[Any, Any, Any], Any]


def draw_afresh(mechanism: Any, histogram: Any, rank: Any) -> Any:
    """Draw from the operating system's randomness and store nothing.

    This is for campaigns that are never retried.
    """
    return mechanism.release(histogram, rank, os_entropy)


# The rank that a release aims at, or the reason why there is none.
Ranked = tuple[int | None, str | None]

# The absolute error of tails that a Fourier transform of doubles computes.
_FOURIER_ERROR = 1e-13
# The largest variance of a sum of noise whose law is computed as a table; a few seconds.
MOST_TABLE = 1 << 32


def trusted(terms: CentralTerms, *, alpha: float, draw: Draw) -> HistogramProcedure:
    """Sum exact histograms and release once, at the rank that gives coverage 1 - alpha.

    With a beta the rank is that of CARD Theorem 5.1; without one coverage is averaged over the
    mechanism.
    """
    mechanism = trusted_mechanism(terms)
    epsilon = mechanism.privacy.epsilon_at(terms.privacy_delta)
    tally = yield terms.histogram_query
    n = int(tally.counts.sum())
    rank, reason = counted_rank(n, lambda: planned_rank(mechanism, terms, n=n, alpha=alpha))
    made = CentralResult(terms, alpha=alpha, epsilon=epsilon, n=n, owners=tally.owners)
    if rank is None:
        return made.certificate(bin_=terms.bins - 1, reason=reason)
    release: Release = draw(mechanism, Histogram(tally.counts, terms.edges), rank)
    return made.certificate(
        bin_=release.bin,
        reason=top_reason(release),
        rank=rank,
        inflation=release.inflation,
        randomness=release.randomness,
    )


def trusted_mechanism(terms: CentralTerms) -> Mechanism:
    """The certified mechanism that a plan of exact counts names, within the plan's budget."""
    check_choice(f"mechanism of {terms.variant}", terms.mechanism, certified_names())
    return within_budget(
        terms.mechanism,
        bins=terms.bins,
        beta=terms.beta,
        adjacency=REPLACE_ONE,
        epsilon=terms.epsilon,
        delta=terms.privacy_delta,
    )


def planned_rank(mechanism: Mechanism, terms: CentralTerms, *, n: int, alpha: float) -> int:
    """The rank of n records for what the terms promise; refused if they have none."""
    if not terms.delta:
        return mechanism.rank(n=n, alpha=alpha)
    return check_rank(mechanism.pac_rank(n=n, alpha=alpha, delta=terms.delta), n)


def searched_rank(terms: CentralTerms, *, n: int, alpha: float) -> int:
    """The rank of a search that ends below it with probability beta."""
    if not terms.delta:
        return certified_rank(n=n, alpha=alpha, beta=terms.beta)
    room = Fraction(str(terms.delta)) - Fraction(str(terms.beta))
    return check_rank(tail_rank(n=n, alpha=alpha, delta=room), n)


def top_reason(release: Release) -> str | None:
    """Return why a release is of no use, if it is the top of the grid."""
    if release.threshold < 1:
        return None
    return "the release is the top of the grid: too few records for this epsilon"


def owner_noised(terms: CentralTerms, *, alpha: float) -> CountProcedure:
    """Buffered right-endpoint search (SCP Algorithm 2) on counts that every owner has noised.

    The owners of the first round are the calibration set: n and the rank come from them. An owner
    that does not answer later contributes 0, which only lowers counts, so the threshold can only
    rise. The right end moves to a bin when the sum reaches r + offset, where offset bounds the
    noise of all owners that answered the round except with probability beta/steps: by a union bound
    over the steps the threshold is at or above the r-th score except with probability beta.
    """
    found = yield from noised_search(
        terms,
        rank=lambda n: counted_rank(n, lambda: searched_rank(terms, n=n, alpha=alpha)),
        beta=terms.beta,
    )
    made = CentralResult(
        terms, alpha=alpha, epsilon=terms.noise_epsilon, n=found.n, owners=found.owners
    )
    return made.certificate(
        bin_=found.bin, reason=found.reason, rank=found.rank, inflation=found.inflation
    )


@dataclass(frozen=True)
class NoisedSearch:
    """Where a search on noised counts ended: its bin, and the rank that it looked for."""

    bin: int
    n: int
    owners: int
    rank: int | None
    inflation: int | None
    reason: str | None


def noised_search(
    terms: CentralTerms, *, rank: Callable[[int], Ranked], beta: float | None, buffer: int = 0
) -> Generator[CountQuery, CountTally, NoisedSearch]:
    """Bisect on counts that every owner has noised; `rank` gives the rank of n records.

    The right end moves to a bin when the sum reaches rank + buffer + offset. Without a `beta` there
    is no offset, and nothing bounds how far the search ends from the rank.
    """
    grid, steps, variance = terms.edges, terms.rounds, terms.noise_variance
    left, right, complete = -1, terms.bins - 1, True
    enrolled: dict[bytes, int] = {}
    wanted, reason = None, None

    def offset(owners: int) -> int:
        return 0 if beta is None else noise_offset(variance, owners, beta / steps)

    while right - left > 1:
        middle = (left + right) // 2
        tally = yield CountQuery(float(grid[middle]), variance)
        if not enrolled:
            enrolled = {owner: size for owner, (size, _) in tally.answers.items()}
            wanted, reason = rank(sum(enrolled.values()))
        if wanted is None:
            break
        # An owner whose number of records has changed counts other records, so it is left out.
        counts = [
            count for owner, (size, count) in tally.answers.items() if enrolled.get(owner) == size
        ]
        complete &= len(counts) == len(enrolled)
        reached = bool(counts) and sum(counts) >= wanted + buffer + offset(len(counts))
        left, right = (left, middle) if reached else (middle, right)
    if reason is None and right == terms.bins - 1:
        reason = (
            "no count below the top of the grid was high enough: too few records for this epsilon "
            "and so many owners"
        )
    inflation = None
    if complete and enrolled and wanted is not None and beta is not None:
        # If every owner answers, only a noise below -offset passes over a bin with
        # N_j >= r + buffer + 2 offset.
        inflation = buffer + 2 * offset(len(enrolled))
    return NoisedSearch(
        right, sum(enrolled.values()), len(enrolled), wanted, inflation=inflation, reason=reason
    )


def noise_offset(variance: int, owners: int, beta: float) -> int:
    """The least offset that the sum of the owners' noise exceeds with probability at most beta.

    The sum is of `owners` discrete Gaussians. The offset is rounded up. Beyond a variance at which
    a table of their law would take much memory, and below the least tail of the table, it is the
    sub-Gaussian one.
    """
    tails = _tails(variance, owners) if variance * owners <= MOST_TABLE else None
    if tails is None or tails[-1] > beta:
        return int(np.ceil(_subgaussian(variance, owners, beta)))
    return int(np.argmax(tails <= beta))


def _subgaussian(variance: int, owners: int, beta: float) -> float:
    """The offset by P(sum > x) <= exp(-x^2 / (2 owners variance)).

    Discrete Gaussians are sub-Gaussian (Canonne, Kamath, Steinke 2020).
    """
    return float(np.sqrt(2 * owners * variance * np.log(1 / beta)))


@cache
def _tails(variance: int, owners: int) -> Floats:
    """P(sum > x) for x = 0, 1, ..., rounded up.

    Mass beyond twelve standard deviations, e^-72 of it, wraps around.
    """
    reach = int(np.ceil(12 * np.sqrt(variance * max(owners, 1)))) + 4
    x = np.fft.ifftshift(np.arange(-reach, reach))
    one = np.exp(-(x**2) / (2 * variance))
    law = np.fft.irfft(np.fft.rfft(one / one.sum()) ** owners, n=2 * reach)
    upper = law[1:reach]
    return np.append(np.cumsum(upper[::-1])[::-1], 0.0) + reach * _FOURIER_ERROR


def counted_rank(n: int, rank: Callable[[], int]) -> Ranked:
    """Return the rank of n counted records, or why they have none."""
    if n == 0:
        return None, "no records were counted"
    if n > MOST_RECORDS:
        raise BadInput(
            f"more than {MOST_RECORDS:,} records were counted; accepted are at most so many"
        )
    try:
        return rank(), None
    except BadInput as error:
        return None, str(error)


@dataclass(frozen=True)
class CentralResult:
    """The values that all certificates of a campaign have in common, for any release."""

    terms: CentralTerms
    alpha: float
    epsilon: float
    n: int
    owners: int

    def certificate(
        self,
        *,
        bin_: int,
        reason: str | None,
        rank: int | None = None,
        inflation: int | None = None,
        randomness: str | None = None,
    ) -> CentralCertificate:
        terms = self.terms
        return CentralCertificate(
            method=terms.method,
            variant=terms.variant,
            kind=terms.guarantee,
            threshold=float(terms.edges[bin_]),
            level=1 - self.alpha,
            alpha=self.alpha,
            n=self.n,
            epsilon=self.epsilon,
            privacy_delta=terms.privacy_delta,
            randomness=randomness or NOT_STATED,
            reason=reason,
            release=terms.mechanism,
            assumptions=PAC_ASSUMPTIONS if terms.delta else MARGINAL_ASSUMPTIONS,
            delta=terms.delta or None,
            beta=terms.beta,
            bins=terms.bins,
            grid=terms.grid,
            bin=bin_,
            rank=rank,
            inflation=inflation,
            owners=self.owners,
        )
