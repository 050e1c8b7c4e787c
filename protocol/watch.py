"""What a monitor found: the evidence after every round, and whether that is an alarm."""

from dataclasses import dataclass

from confide.protocol.certificate import DROPOUTS, FRESH, IID, MIXTURE, Certificate


@dataclass(frozen=True)
class WatchedRound:
    """One round of a monitor: its answers, how many were one, and the log-evidence after it."""

    n: int
    ones: int
    log_evidence: float
    needed: float


@dataclass(frozen=True, kw_only=True)
class MonitorCertificate(Certificate):
    """The result of watching a threshold: an alarm that coverage is below 1 - alpha, or none.

    It promises no coverage, so `level` is 0. `delta` bounds false alarms as the variant says.
    """

    delta: float
    channel: str
    max_corrupt: int = 0
    rounds: tuple[WatchedRound, ...] = ()
    assumptions: tuple[str, ...] = (IID, MIXTURE, DROPOUTS, FRESH)

    @property
    def alarm(self) -> bool:
        return any(found.log_evidence >= found.needed for found in self.rounds)

    @property
    def mechanism(self) -> str:
        return self.channel
