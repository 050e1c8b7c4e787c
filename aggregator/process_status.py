"""The state of one server process, which its parts write and its gauges and health checks read."""

import math
from dataclasses import dataclass

# A process that has not read its database for so long is not healthy.
STALE_SECONDS = 15.0


@dataclass
class ProcessStatus:
    """Counts since the start, and when the database was last read."""

    transactions: int = 0
    failures: int = 0
    seconds: float = 0.0
    open_calls: int = 0
    # Whether the last write succeeded.
    writes: bool = True
    looked: float = -math.inf
    # Campaigns that could not be advanced at the last step.
    stuck: int = 0
    stopping: bool = False

    def committed(self, seconds: float) -> None:
        """Count a transaction that is durable."""
        self.transactions += 1
        self.seconds += seconds

    def healthy(self, now: float) -> bool:
        """Whether the database was read recently, the last write succeeded, and no stop is due."""
        return self.writes and not self.stopping and now - self.looked < STALE_SECONDS
