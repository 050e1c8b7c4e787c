"""How one server process fares: written by those who do the work, read by gauges and health
checks."""

import math
from dataclasses import dataclass

# A process that has not looked at its database for so long is not well, whatever it found then.
STALE_SECONDS = 15.0


@dataclass
class ProcessStatus:
    """Counts since the start, and the last look at the database."""

    transactions: int = 0
    failures: int = 0
    seconds: float = 0.0
    open_calls: int = 0
    # Whether the last that was to be stored could be.
    writes: bool = True
    looked: float = -math.inf
    # Campaigns that could not be advanced at the last step.
    stuck: int = 0
    stopping: bool = False

    def committed(self, seconds: float) -> None:
        """Count a transaction that is durable."""
        self.transactions += 1
        self.seconds += seconds

    def well(self, now: float) -> bool:
        """Whether the database could be read a moment ago, the last that was to be stored was, and
        there is more to come."""
        return self.writes and not self.stopping and now - self.looked < STALE_SECONDS
