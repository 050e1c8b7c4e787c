"""A certificate for every part of the records, or for each: what their own reports certify.

Parts are owners, or groups that the plan names. Each one's own reports certify a threshold at level
delta. Per part, that is its threshold. For every part, the largest of them is everybody's. If it
covers too little in some part, it does so in the one that needs the highest threshold; that part is
fixed by the population, and its own test must have certified something false: probability delta at
most, undivided.

Parts with fewer reports than the plan's floor are named as not covered. Sizes alone decide that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self, TypeVar

from confide.protocol.certificate import (
    BY_OWNER,
    DROPOUTS,
    IID_PARTS,
    LIARS,
    LIARS_IN_ORDER,
    MIXTURE,
    BitRung,
    LabelRung,
    LocalCertificate,
    Stratum,
)
from confide.protocol.methods.owner_terms import TOGETHER
from confide.protocol.methods.partition import Division, by_owner
from confide.protocol.methods.parts import MOST_PARTS

AnyTally = TypeVar("AnyTally", bound="Divisible")


class Divisible(Protocol):
    """A tally that keeps parts apart."""

    @property
    def keys(self) -> tuple[bytes, ...]: ...
    def of(self, key: bytes) -> Self: ...


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a plan asks of parts: the variant, its claim, and the reports that a part needs."""

    variant: str
    delta: float
    joint: bool = False
    floor: int = 1
    division: Division = by_owner

    @property
    def together(self) -> bool:
        """Whether one threshold is everybody's."""
        return self.variant in TOGETHER

    @property
    def by(self) -> str:
        """What a part is."""
        return self.division.by

    def share(self, parts: int) -> float:
        """The level of each test: delta is divided only where each has a threshold, and jointly."""
        return self.delta / max(parts, 1) if self.joint and not self.together else self.delta

    @property
    def one_part(self) -> str:
        """A part, in words."""
        return f"{'an' if self.by == BY_OWNER else 'a'} {self.by}"

    def too_few(self, name: str, n: int, delta: float) -> Stratum:
        """A part with fewer reports than the floor."""
        reason = f"too few reports: {n}, the plan asks for {self.floor} of {self.one_part}"
        return Stratum(name=name, threshold=1.0, n=n, delta=delta, reason=reason, covered=False)


class Found(NamedTuple):
    """What the reports of a part certify; `rungs` are those that decide."""

    n: int
    threshold: float
    rungs: Sequence[BitRung | LabelRung]


def divided(
    tally: AnyTally,
    pooled: LocalCertificate,
    wanted: Wanted,
    *,
    size: Callable[[AnyTally], int],
    test: Callable[[AnyTally, float], Found],
) -> LocalCertificate:
    """Test the reports of every part, and put what they certify on the certificate.

    `pooled` has what all certificates of the campaign state. `size` counts the reports of a tally;
    `test` finds what they certify at a level.
    """
    named = wanted.division.named(tally.keys)
    level, parts = wanted.share(len(named)), []
    for name, key in named:
        one = tally.of(key)
        n = size(one)
        if n < wanted.floor:
            parts.append(wanted.too_few(name, n, level))
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
        reason = f"no threshold below 1 at {wanted.by} {', '.join(high[:20])}"
        if not high:
            reason = f"no {wanted.by} has the {wanted.floor} reports that the plan asks of one"
    liars = [one for one in pooled.assumptions if one in (LIARS, LIARS_IN_ORDER)]
    return replace(
        pooled,
        threshold=threshold,
        reason=reason,
        by=wanted.by,
        joint=wanted.joint and not wanted.together,
        together=wanted.together,
        strata=tuple(parts),
        # A group is met at several owners, whose mixture within the group is what answered.
        assumptions=(IID_PARTS, *(() if wanted.by == BY_OWNER else (MIXTURE,)), DROPOUTS, *liars),
    )
