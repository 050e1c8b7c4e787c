"""A certificate for every owner, or for each: what owners' own reports certify, put together.

Each owner's own reports certify a threshold at level delta. Per owner, that is its threshold. For
every owner, the largest of them is everybody's. If it covers too little at some owner, it does so
at the owner that needs the highest threshold; that owner is fixed by the population, and its own
test must have certified something false: probability delta at most, undivided (METHODS 13).

Owners with fewer reports than the plan's floor are named as not covered. Sizes alone decide that.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self, TypeVar

from confide.protocol.certificate import (
    BY_OWNER,
    DROPOUTS,
    IID_PARTS,
    LIARS,
    LIARS_IN_ORDER,
    BitRung,
    LabelRung,
    LocalCertificate,
    Stratum,
)
from confide.protocol.methods.owner_terms import FOR_EVERY_OWNER, PER_OWNER
from confide.protocol.methods.parts import MOST_PARTS

AnyTally = TypeVar("AnyTally", bound="Divisible")


class Divisible(Protocol):
    """A tally that keeps parts apart."""

    @property
    def keys(self) -> tuple[bytes, ...]: ...
    def of(self, key: bytes) -> Self: ...


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a plan asks of owners: the variant, its claim, and the reports that an owner needs."""

    variant: str
    delta: float
    joint: bool = False
    floor: int = 1

    @property
    def together(self) -> bool:
        """Whether one threshold is everybody's."""
        return self.variant == FOR_EVERY_OWNER

    def share(self, parts: int) -> float:
        """The level of each test: delta is divided only where each has a threshold, and jointly."""
        return (
            self.delta / max(parts, 1) if self.joint and self.variant == PER_OWNER else self.delta
        )


class Found(NamedTuple):
    """What an owner's reports certify; `rungs` are those that decide."""

    n: int
    threshold: float
    rungs: Sequence[BitRung | LabelRung]


def named(keys: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The numbers under which cards name parts: from 1, in the order of their keys."""
    return enumerate(sorted(keys), start=1)


def divided(
    tally: AnyTally,
    pooled: LocalCertificate,
    wanted: Wanted,
    *,
    size: Callable[[AnyTally], int],
    test: Callable[[AnyTally, float], Found],
) -> LocalCertificate:
    """Test the reports of every owner, and put what they certify on the certificate.

    `pooled` has what all certificates of the campaign state. `size` counts the reports of a tally;
    `test` finds what they certify at a level.
    """
    level = wanted.share(len(tally.keys))
    parts = []
    for number, key in named(tally.keys):
        one = tally.of(key)
        name, n = str(number), size(one)
        if n < wanted.floor:
            reason = f"too few reports: {n}, the plan asks for {wanted.floor} of an owner"
            left_out = Stratum(
                name=name, threshold=1.0, n=n, delta=level, reason=reason, covered=False
            )
            parts.append(left_out)
            continue
        found = test(one, level)
        reason = f"no threshold below 1 passed on its {found.n} reports"
        parts.append(
            Stratum(
                name=name,
                threshold=found.threshold,
                n=found.n,
                delta=level,
                rungs=tuple(found.rungs),
                reason=reason if found.threshold >= 1 else None,
            )
        )
    return put_together(pooled, wanted, parts)


def _nobody(n: int, level: float) -> Stratum:
    reason = "no report came"
    if n:
        reason = f"reports have no owners, or more than {MOST_PARTS:,}, which are not kept apart"
    return Stratum(name="all", threshold=1.0, n=n, delta=level, reason=reason, covered=False)


def put_together(
    pooled: LocalCertificate, wanted: Wanted, parts: Sequence[Stratum]
) -> LocalCertificate:
    """The certificate with these parts: the threshold is the largest of those that are covered."""
    parts = parts or [_nobody(pooled.n, wanted.delta)]
    covered = [one.threshold for one in parts if one.covered]
    relevant = covered if wanted.together else [one.threshold for one in parts]
    threshold, reason = max(relevant, default=1.0), None
    trivial = threshold >= 1 if wanted.together else min(relevant) >= 1
    if trivial:
        high = [one.name for one in parts if one.threshold >= 1 and one.covered]
        reason = f"no threshold below 1 at owner {', '.join(high[:20])}"
        if not high:
            reason = f"no owner has the {wanted.floor} reports that the plan asks of one"
    liars = [one for one in pooled.assumptions if one in (LIARS, LIARS_IN_ORDER)]
    return replace(
        pooled,
        threshold=threshold,
        reason=reason,
        by=BY_OWNER,
        joint=wanted.joint and not wanted.together,
        together=wanted.together,
        strata=tuple(parts),
        assumptions=(IID_PARTS, DROPOUTS, *liars),
    )
