"""Whether the time of day can be trusted.

A campaign that is closed because of a wrong time cannot be opened again.
"""

from collections.abc import Callable

# What the time of day may gain or lose on a clock that only goes forward between two looks, and how
# long it must have kept pace again before anything is decided by it.
JUMP_SECONDS, DOUBT_SECONDS = 5.0, 60.0


class Clock:
    """The time of day in seconds since 1970, compared with a clock that is never set.

    A jump is doubted, then believed: one that is taken back within the pause (a wrong time server,
    a slip of the operator) has had no effect, and one that stays (a machine that was suspended) has
    only cost the pause. A clock that is wrong from the start cannot be told from a right one.
    """

    def __init__(self, now: Callable[[], float], steady: Callable[[], float]) -> None:
        self.now, self._steady = now, steady
        self._ahead, self._since = now() - steady(), -DOUBT_SECONDS + steady()

    def look(self) -> float:
        """The seconds that the clock has jumped since the last call.

        0 for what a carefully set clock may gain or lose.
        """
        before, self._ahead = self._ahead, self.now() - self._steady()
        jump = self._ahead - before
        if abs(jump) <= JUMP_SECONDS:
            return 0.0
        self._since = self._steady()
        return jump

    @property
    def believed(self) -> bool:
        """Whether it has kept pace for long enough at the last look."""
        return self._steady() - self._since >= DOUBT_SECONDS
