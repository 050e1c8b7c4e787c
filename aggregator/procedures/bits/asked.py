"""What a campaign of bits was asked for, and the certificate that says so."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from confide.aggregator.procedures.certify import Search, null_rate, tail
from confide.aggregator.procedures.levels import LevelSearch, nothing_passed, threshold_of
from confide.protocol.certificate import (
    DROPOUTS,
    IID,
    LIARS,
    MIXTURE,
    PAC,
    BitRung,
    Level,
    LocalCertificate,
    promise_of,
)
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput, check_probability
from confide.protocol.levels import Levels


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The promise and expectations of a campaign; `finish` puts them on a certificate.

    With `levels`, pairs of alpha and delta, the promise is a band, or an average if delta is 0.
    """

    variant: str
    channel: Bit
    alpha: float
    delta: float
    n: int
    max_corrupt: int
    levels: Levels = ()
    # How records are drawn, and the mixture of owners that the promise is for.
    drawn: tuple[str, str] = (IID, MIXTURE)

    def __post_init__(self) -> None:
        check_probability("alpha", self.alpha)
        if self.delta or not self.levels:
            check_probability("delta", self.delta)
        if self.n < 1:
            raise BadInput(f"n is {self.n}; at least 1 record must be expected")
        if self.max_corrupt < 0:
            raise BadInput(f"max_corrupt is {self.max_corrupt}; it must be 0 or more")

    @property
    def m0(self) -> float:
        """The rate of ones at coverage 1 - alpha."""
        return null_rate(self.channel, self.alpha)

    def hopeless(self, answers: int) -> bool:
        """Whether this many answers would certify nothing even if all of them were ones.

        An average needs all levels; a band has something to say where one is certified.
        """
        honest = max(0, answers - self.max_corrupt)
        out = [tail(honest, answers, one.m0) > one.delta for one in self.each]
        return any(out) if not self.delta else all(out)

    @property
    def each(self) -> "list[Asked]":
        """The promise of every single level; a PAC promise is its own only level."""
        return [replace(self, alpha=at, delta=by, levels=()) for at, by in self.levels] or [self]

    def search(self, *, unequal: bool = False) -> Search:
        return Search(delta=self.delta, m0=self.m0, max_corrupt=self.max_corrupt, unequal=unequal)

    def level_search(self) -> LevelSearch:
        own = {one.alpha: one.search() for one in self.each}
        return LevelSearch(self.alpha, own, self.m0)

    def finish_levels(self, *, arrived: int, levels: Sequence[Level]) -> LocalCertificate:
        """The certificate of a promise at several levels; these levels were found."""
        promise = {"alpha": self.alpha, "delta": self.delta}
        q, reason = threshold_of(levels, **promise), None
        if q >= 1:
            reason = nothing_passed(levels, **promise, n=arrived)
        made = self.finish(arrived=arrived, rungs=(), threshold=q, reason=reason)
        return replace(made, kind=promise_of(levels, self.delta), levels=tuple(levels))

    def finish(
        self, *, arrived: int, rungs: Sequence[BitRung], threshold: float, reason: str | None
    ) -> LocalCertificate:
        return LocalCertificate(
            method="bits",
            variant=self.variant,
            kind=PAC,
            threshold=threshold,
            level=1 - self.alpha,
            alpha=self.alpha,
            delta=self.delta,
            n=arrived,
            channel=self.channel.name,
            epsilon=self.channel.epsilon,
            max_corrupt=self.max_corrupt,
            planned=self.n,
            rungs=tuple(rungs),
            reason=reason,
            assumptions=(*self.drawn, DROPOUTS, *((LIARS,) if self.max_corrupt else ())),
        )

    def too_few(self) -> LocalCertificate:
        # An average needs all levels, a band any.
        most = min if self.delta else max
        needed = most(math.ceil(math.log(one.delta) / math.log(one.m0)) for one in self.each)
        reason = (
            f"too few reports: {self.n} records, of which {self.max_corrupt} may be corrupt; the "
            f"test alone takes at least {needed} honest answers to certify anything"
        )
        made = self.finish(arrived=0, rungs=(), threshold=1.0, reason=reason)
        levels = tuple(Level(alpha=at, delta=by, threshold=1.0) for at, by in self.levels)
        return replace(made, kind=promise_of(levels, self.delta), levels=levels)
