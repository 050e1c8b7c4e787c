"""Certificates at several levels from the same answers: the threshold, and bits that test them all.

Why levels hold together is in `confide.protocol.levels`.
"""

from collections.abc import Sequence

from confide.aggregator.procedures.certify import Search, check_stage
from confide.protocol.certificate import BAND, BitRung, Level, promise_of


def threshold_of(levels: Sequence[Level], *, alpha: float, delta: float) -> float:
    """The threshold that is published: that of alpha in a band, else the largest of all levels."""
    band = promise_of(levels, delta) == BAND
    return max(one.threshold for one in levels if not band or one.alpha == alpha)


def nothing_passed(levels: Sequence[Level], *, alpha: float, delta: float, n: int) -> str:
    """Why the published threshold is 1: the level at which no threshold below it passed."""
    band = promise_of(levels, delta) == BAND
    failed = [one for one in levels if one.threshold >= 1 and (not band or one.alpha == alpha)]
    return (
        f"too few reports: {n} certify no threshold below 1 at coverage {1 - failed[0].alpha:.4f}, "
        f"one of {len(levels)} levels, but for {failed[0].delta:.2g}"
    )


class LevelSearch:
    """A search for the threshold that bits certify at every level.

    Every level has a `Search` of its own, and all of them test the same stages: a search may be
    asked anything below what it has certified, whatever decides it, and one that has certified the
    threshold of a stage already, or can certify nothing more, skips it.
    """

    def __init__(self, alpha: float, searches: dict[float, Search], null: float) -> None:
        self.null = null
        self._searches = searches
        self._rungs: dict[float, list[BitRung]] = {at: [] for at in searches}
        # With each search the coverage by which its level is above that of the plan.
        self.tests = [(alpha - at, search) for at, search in searches.items()]

    @property
    def levels(self) -> list[Level]:
        """What the stages so far certify."""
        return [
            Level(
                alpha=at,
                delta=search.delta,
                threshold=search.certified,
                rungs=tuple(self._rungs[at]),
            )
            for at, search in self._searches.items()
        ]

    @property
    def certified(self) -> float:
        """The lowest threshold that all levels certify."""
        return max(search.certified for search in self._searches.values())

    @property
    def failed(self) -> bool:
        """Whether a threshold was asked that some level does not certify."""
        return any(search.failed for search in self._searches.values())

    @property
    def floor(self) -> float:
        """The lowest threshold that was asked and that some level does not certify."""
        return min((s.floor for s in self._searches.values() if s.failed), default=0.0)

    @property
    def finished(self) -> bool:
        """Whether a level that needs the highest threshold can go no lower."""
        highest = self.certified
        return any(s.finished for s in self._searches.values() if s.certified == highest)

    def test(self, threshold: float, *, n: int, ones: int, rest: int) -> None:
        """Test a threshold on n fresh answers at every level that has not certified it."""
        check_stage(self, threshold)
        for at, search in self._searches.items():
            if threshold < search.certified and not search.finished:
                self._rungs[at].append(search.test(threshold, n=n, ones=ones, rest=rest))
