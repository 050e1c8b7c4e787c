"""Trying again, later and later, until patience is over."""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from protocol.errors import ConfideError

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
# Somebody who looks at a terminal is told of the first try again, and then so often.
TOLD_SECONDS = 60.0


class Unreachable(ConfideError):
    """The aggregator could not be reached, or did not let this owner in."""


@dataclass(frozen=True)
class Patience:
    """For how many seconds something is tried again, the longest pause between two tries, and who is told."""

    seconds: float
    longest_pause: float = 30.0
    tell: Callable[[str], None] = log.info
    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def tries(self) -> "Tries":
        return Tries(self)


class Tries:
    """The tries of one thing, from now on."""

    def __init__(self, patience: Patience) -> None:
        self._patience, self._pause = patience, FIRST_PAUSE
        self._tell_at = patience.now()
        self._until = self._tell_at + patience.seconds

    def wait(self, why: str) -> None:
        """Pause before the next try: twice as long each time, shortened by chance, so that many owners do not come at once."""
        now = self._patience.now()
        if now >= self._until:
            raise Unreachable(f"{why}, for {self._patience.seconds:g} s")
        if now >= self._tell_at:
            self._patience.tell(f"{why}; trying again for {self._until - now:.0f} s")
            self._tell_at = now + TOLD_SECONDS
        self._patience.pause(random.uniform(self._pause / 2, self._pause))
        self._pause = min(2 * self._pause, self._patience.longest_pause)
