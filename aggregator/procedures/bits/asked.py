"""What a campaign of bits was asked for, and the certificate that says so."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from confide.aggregator.procedures.certify import Search, null_rate, tail
from confide.protocol.certificate import (
    DROPOUTS,
    IID,
    LIARS,
    MIXTURE,
    PAC,
    BitRung,
    LocalCertificate,
)
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput, check_probability


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The promise and expectations of a campaign; `finish` puts them on a certificate."""

    variant: str
    channel: Bit
    alpha: float
    delta: float
    n: int
    max_corrupt: int

    def __post_init__(self) -> None:
        check_probability("alpha", self.alpha)
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
        """Whether this many answers would certify nothing even if all of them were ones."""
        honest = max(0, answers - self.max_corrupt)
        return tail(honest, answers, self.m0) > self.delta

    def search(self, *, unequal: bool = False) -> Search:
        return Search(delta=self.delta, m0=self.m0, max_corrupt=self.max_corrupt, unequal=unequal)

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
            assumptions=(IID, MIXTURE, DROPOUTS, *((LIARS,) if self.max_corrupt else ())),
        )

    def too_few(self) -> LocalCertificate:
        needed = math.ceil(math.log(self.delta) / math.log(self.m0))
        reason = (
            f"too few reports: {self.n} records, of which {self.max_corrupt} may be corrupt; the "
            f"test alone takes at least {needed} honest answers to certify anything"
        )
        return self.finish(arrived=0, rungs=(), threshold=1.0, reason=reason)
