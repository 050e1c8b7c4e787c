"""Tries of a call, with growing pauses, until patience is over."""

import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confide.protocol.errors import ConfideError

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
# The first retry is reported at once, later ones at most once in this time.
TOLD_SECONDS = 60.0


class Unreachable(ConfideError):
    """The aggregator could not be reached, or did not let this owner in."""


@dataclass
class Patience:
    """How long to try again, the longest pause between two tries, and where to report it.

    `uniform` draws a number between two others: by how much a pause is shortened.
    """

    seconds: float
    longest_pause: float = 30.0
    tell: Callable[[str], None] = log.info
    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform
    _told: float = field(default=-math.inf, init=False)

    def tries(self) -> "Tries":
        return Tries(self)

    def say(self, text: str) -> None:
        """Report it, unless something was reported a moment ago."""
        if self.now() >= self._told + TOLD_SECONDS:
            self._told = self.now()
            self.tell(text)


class Tries:
    """The tries of one call, from now on."""

    def __init__(self, patience: Patience) -> None:
        self._patience, self._pause = patience, FIRST_PAUSE
        self._until = patience.now() + patience.seconds

    def wait(self, why: str) -> None:
        """Pause before the next try: twice as long each time, and shortened at random.

        So many owners do not come back at the same moment.
        """
        left = self._until - self._patience.now()
        if left <= 0:
            raise Unreachable(f"{why}, for {self._patience.seconds:g} s")
        self._patience.say(f"{why}; trying again for {left:.0f} s")
        self._patience.pause(self._patience.uniform(self._pause / 2, self._pause))
        self._pause = min(2 * self._pause, self._patience.longest_pause)
