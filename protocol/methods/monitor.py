"""Method monitor: fresh records answer one randomised bit each, at the threshold of a card.

The bits tell whether coverage at that threshold is still what the card promises. Evidence against
it is measured by betting, so that it may be looked at after every round, for ever.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput
from confide.protocol.methods.base import MONITOR, Explanation
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.local import LocalTerms
from confide.protocol.methods.parts import BitTally
from confide.protocol.methods.thresholds import Alarm, check_thresholds
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse

E_PROCESS, E_DETECTOR = "e-process", "e-detector"
MOST_PERIODS = 10_000
# The falls of coverage that are bet on, as shares of the level: 0.5 % to 100 % of it.
FALLS = tuple(float(fall) for fall in np.geomspace(0.005, 1.0, 24))
# Added to the log-evidence needed, for each report: above the rounding error of the sums.
ROUNDING = 1e-12

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MonitorTerms(LocalTerms):
    """The terms of a campaign that watches the threshold of a card.

    e-process: the probability that a false alarm is ever raised is at most `delta`. e-detector: a
    false alarm takes 1 / `delta` answered rounds or more on average; it reacts faster to a change
    after good rounds. `card` is the digest of the card; there are at most `periods` rounds.
    """

    threshold: float
    card: bytes
    periods: int

    method: ClassVar[str] = "monitor"
    of_risks: ClassVar[bool] = True
    variants: ClassVar[tuple[str, ...]] = (E_PROCESS, E_DETECTOR)
    track: ClassVar[str] = MONITOR
    # It watches a threshold that another campaign found.
    calibrates_by_reports: ClassVar[bool] = False
    message: ClassVar[type[Message]] = wire.MonitorTerms
    reports_message: ClassVar[type[Message]] = wire.BitReports
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        **LocalTerms.settings,
        "monitors": (),
        "periods": (),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_thresholds((self.threshold,))
        if self.threshold >= 1:
            raise BadInput("threshold is 1, which covers everything; accepted is one below 1")
        if len(self.card) != 32:
            raise BadInput(f"card has {len(self.card)} bytes; accepted is the digest of a card, 32")
        if not 1 <= self.periods <= MOST_PERIODS:
            raise BadInput(f"periods is {self.periods}; accepted is 1 to {MOST_PERIODS}")

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        if "watched" not in settings:
            raise BadInput(
                f"{cls.method}:{variant} watches the threshold of a card, and monitors is not "
                "given; accepted is the file of a card, in `confide-aggregator campaign create`"
            )
        return cls(
            variant=variant,
            epsilon=float(settings["epsilon"]),
            delta=float(settings["failure-probability"]),
            max_corrupt=int(settings["max-corrupt"]),
            threshold=float(settings["threshold"]),
            card=bytes(settings["watched"]),
            periods=int(settings["periods"]),
        )

    def make_channel(self, *, labels: int) -> Bit:
        return Bit(epsilon=self.epsilon)

    def query(self) -> BitQuery:
        """Ask every record that has not answered yet."""
        return BitQuery(self.make_channel(labels=0), 0.0, 1.0, (self.threshold,))

    def read_query(self, body: bytes, *, labels: int) -> BitQuery:
        message, asked = parse(wire.BitQuery, body), self.query()
        if tuple(message.thresholds) != asked.thresholds or (message.start, message.stop) != (0, 1):
            raise BadInput(
                f"a monitor asks about {tuple(message.thresholds)} in [{message.start}, "
                f"{message.stop}); accepted is {self.threshold} in [0, 1)"
            )
        return asked

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        channel = self.make_channel(labels=labels)
        return Explanation(
            channel.epsilon,
            f"watches whether prediction sets still have {1 - alpha:.0%} coverage",
            "From each record, at most once, leaves one bit: whether the record's score is below "
            f"{self.threshold:.6g}, told truly with probability {float(channel.hit):.1%}. Records "
            "that you add later answer in later rounds.",
        )

    def row_bits(self, *, labels: int) -> dict[str, int]:
        return {"parts": 16, "reports": 1}

    def alarm(self, tallies: Sequence[BitTally], *, alpha: float) -> Alarm:
        steps = _steps(self.make_channel(labels=0), alpha)
        measured = _ever if self.variant == E_PROCESS else _restarted
        counts = [(sum(tally.answers), sum(tally.ones)) for tally in tallies]
        found = measured(np.asarray(counts, dtype=np.int64).reshape(-1, 2), self.max_corrupt, steps)
        needed = math.log(1 / self.delta) + ROUNDING * sum(n for n, _ in counts)
        return Alarm(found, needed)


@lru_cache(maxsize=64)
def _steps(channel: Bit, alpha: float) -> tuple[Floats, Floats]:
    """The gain in log-capital of every bet by a one (a loss) and by a zero.

    A bet on rate m1 < m0 multiplies capital by m1/m0 or (1 - m1)/(1 - m0). Its mean at rate p is
    linear in p, 1 at m0 and below 1 above it; so m0 is rounded down.
    """
    level = 1 - Fraction(alpha)
    m0 = math.nextafter(float(channel.observed(level)), 0.0)
    m1 = np.array([float(channel.observed(level * (1 - Fraction(fall)))) for fall in FALLS])
    return np.log(m1 / m0), np.log1p(-m1) - math.log1p(-m0)


def _ever(counts: NDArray[np.int64], lies: int, steps: tuple[Floats, Floats]) -> float:
    """The log of the mean capital of all bets, each begun with 1 before the first report.

    The mean of supermartingales is one, and exceeds 1/delta ever with probability at most delta
    (Ville). Honest reports would hold at most `lies` more ones, and the capital falls with ones.
    """
    n, ones = (int(column) for column in counts.sum(axis=0))
    return _mean_capital(np.array([n]), np.array([min(n, ones + lies)]), steps)[0]


def _restarted(counts: NDArray[np.int64], lies: int, steps: tuple[Floats, Floats]) -> float:
    """The log of the sum of such capitals, one begun before every answered round.

    The sum less the number of answered rounds is a supermartingale, so that without a fall it takes
    1/delta rounds or more on average to reach 1/delta (Shin, Ramdas and Rinaldo 2024).
    """
    answered = counts[counts[:, 0] > 0]
    if not len(answered):
        return -math.inf
    n, ones = np.cumsum(answered[::-1], axis=0).T
    return float(np.logaddexp.reduce(_mean_capital(n, np.minimum(n, ones + lies), steps)))


def _mean_capital(
    n: NDArray[np.int64], ones: NDArray[np.int64], steps: tuple[Floats, Floats]
) -> Floats:
    """The log of the mean capital of all bets after so many reports and ones."""
    one, zero = steps
    each = ones[:, None] * one + (n - ones)[:, None] * zero
    return np.logaddexp.reduce(each, axis=1) - math.log(len(FALLS))
