"""The terms that methods of the local track share."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from confide.protocol.certificate import BAND, MARGINAL, PAC, promise_of
from confide.protocol.channels.base import Channel
from confide.protocol.errors import check_probability
from confide.protocol.methods.base import LOCAL, Terms
from confide.protocol.methods.labels.in_clear import OWNER
from confide.protocol.methods.owner_terms import division_of
from confide.protocol.methods.partition import Division


@dataclass(frozen=True, kw_only=True)
class LocalTerms(Terms):
    """The terms of a method whose reports each go through a channel, private one by one.

    The guarantee fails with probability `delta` over calibration, 0 if it is one on average;
    `max_corrupt` reports may be false.
    """

    delta: float
    max_corrupt: int = 0

    track: ClassVar[str | None] = LOCAL
    usual_guarantee: ClassVar[str] = PAC
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        "failure-probability": (PAC, BAND),
        "max-corrupt": (),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guarantee != MARGINAL:
            check_probability("delta", self.delta)

    def check(self, *, labels: int, alpha: float) -> None:
        self.make_channel(labels=labels)

    @property
    def scoring(self) -> str:
        """Who scores records."""
        return OWNER

    @property
    def levels(self) -> tuple[tuple[float, float], ...]:
        """The levels that are certified together, each as alpha and delta; empty if there is one.

        What they promise together: `confide.protocol.methods.levels`.
        """
        return ()

    @property
    def guarantee(self) -> str:
        """What is promised: of this calibration but for `delta`, at many levels, or on average."""
        return promise_of(self.levels, self.delta)

    @property
    def ladder(self) -> tuple[float, ...]:
        """The thresholds that are tested, if the plan fixes them; empty if it does not."""
        return ()

    @property
    def planned_mixture(self) -> bool:
        """Whether the promise is for owners in the shares of the first round."""
        return False

    @property
    def smallest_owner(self) -> int:
        """The records of the smallest owner that rounds are made for; 0 if it does not matter."""
        return 0

    @property
    def part_floor(self) -> int:
        """The reports from which on an owner or group is tested on its own; 0 if none is."""
        return 0

    @property
    def division(self) -> Division:
        """What tallies keep apart: groups if the plan names some, else owners."""
        return division_of(self.group_column, self.groups)

    @abstractmethod
    def make_channel(self, *, labels: int) -> Channel:
        """Return the channel that every report goes through."""
