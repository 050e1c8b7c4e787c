"""The terms that methods of the local track share."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

from confide.protocol.certificate import BAND, MARGINAL, PAC, promise_of
from confide.protocol.channels.base import Channel
from confide.protocol.errors import BadInput, check_choice, check_probability
from confide.protocol.levels import MOST_LEVELS, Levels, band_levels, marginal_levels, most_missed
from confide.protocol.methods.base import AUTOMATIC, LOCAL, Terms
from confide.protocol.methods.labels.in_clear import OWNER
from confide.protocol.methods.owner_terms import division_of
from confide.protocol.methods.partition import Division


@dataclass(frozen=True, kw_only=True)
class LocalTerms(Terms):
    """The terms of a method in which a channel makes every report private by itself.

    The guarantee fails with probability `delta` over calibration, 0 if it is one on average;
    `max_corrupt` reports may be false.
    """

    delta: float
    max_corrupt: int = 0

    track: ClassVar[str] = LOCAL
    calibrates_by_reports: ClassVar[bool] = True
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

        What they promise together: `confide.protocol.levels`.
        """
        return ()

    @property
    def guarantee(self) -> str:
        """What is promised: PAC (but for `delta`), a band of levels, or an average."""
        return promise_of(self.levels, self.delta)

    @property
    def ladder(self) -> tuple[float, ...]:
        """The thresholds that are tested, if the plan fixes them; empty if it does not."""
        return ()

    @property
    def planned_mixture(self) -> bool:
        """Whether the promise is for the owners of the first round, in shares fixed by it."""
        return False

    @property
    def equal_owners(self) -> bool:
        """Whether these shares are equal; else they are those of their reports."""
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


@dataclass(frozen=True, kw_only=True)
class LeveledTerms(LocalTerms):
    """Terms whose certificate may hold at several levels.

    Without levels the promise is PAC. With levels it is a band, which fails with probability
    `delta`, or, where delta is 0, coverage on average.
    """

    level_alphas: tuple[float, ...] = ()
    level_deltas: tuple[float, ...] = ()

    # What variants may promise besides PAC.
    guarantees: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @property
    def levels(self) -> Levels:
        return tuple(zip(self.level_alphas, self.level_deltas, strict=True))

    def __post_init__(self) -> None:
        counts = len(self.level_alphas), len(self.level_deltas)
        rise = all(low < high for low, high in pairwise(self.level_alphas))
        if len({*counts}) > 1 or counts[0] > MOST_LEVELS or not rise:
            raise BadInput(
                f"{counts[0]} levels with {counts[1]} deltas; accepted are up to {MOST_LEVELS} "
                "that rise, with a delta each"
            )
        for alpha, delta in self.levels:
            check_probability("alpha of a level", alpha)
            check_probability("delta of a level", delta)
        super().__post_init__()
        accepted = (PAC, *self.guarantees.get(self.variant, ()))
        check_choice(f"guarantee of {self.method}:{self.variant}", self.guarantee, accepted)

    def check(self, *, labels: int, alpha: float) -> None:
        super().check(labels=labels, alpha=alpha)
        if self.guarantee == MARGINAL and most_missed(self.levels) > Fraction(repr(alpha)):
            raise BadInput(
                f"the levels bound the mean miss by {float(most_missed(self.levels)):.6g}; "
                f"accepted is at most alpha, {alpha:g}"
            )
        if self.guarantee == BAND:
            spent = sum(map(Fraction, self.level_deltas))
            if spent > Fraction(repr(self.delta)) or alpha not in self.level_alphas:
                raise BadInput(
                    f"the levels spend {float(spent):.6g} of delta, {self.delta:g}; accepted is at "
                    f"most that, with alpha, {alpha:g}, among the levels"
                )

    @classmethod
    def leveled(
        cls,
        variant: str,
        settings: Mapping[str, Any],
        *,
        error: Callable[[float], float],
        count: int,
    ) -> dict[str, Any]:
        """The fields of terms with the guarantee that an operator chose.

        `error` is what a report adds to the standard error of coverage that tests are expected to
        have, by alpha: their standard error times the root of the number of records.
        """
        asked = str(settings.get("guarantee", AUTOMATIC))
        delta = float(settings["failure-probability"])
        check_choice(
            f"guarantee of {cls.method}:{variant}",
            asked,
            (AUTOMATIC, PAC, *cls.guarantees.get(variant, ())),
        )
        if asked in (AUTOMATIC, PAC):
            return {"delta": delta}
        alpha, n = float(settings["alpha"]), int(settings["expected"])
        check_probability("alpha", alpha)
        levels = (
            band_levels(alpha, delta)
            if asked == BAND
            else marginal_levels(alpha, error=error(alpha) / math.sqrt(n), count=count)
        )
        alphas, deltas = zip(*levels, strict=True)
        own = {"level_alphas": alphas, "level_deltas": deltas}
        return own | {"delta": delta if asked == BAND else 0.0}
