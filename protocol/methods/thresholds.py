"""The records and thresholds that queries ask about, and what answers say of coverage.

Coverage at a threshold is the share of records whose score is at or below it. A query that asks
about thresholds returns its evidence, from which the operator's page shows how far a search is.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput


def check_slice(start: float, stop: float) -> None:
    """Accept a slice of positions."""
    if not 0 <= start < stop <= 1:
        raise BadInput(f"slice is [{start}, {stop}); accepted is 0 <= start < stop <= 1")


def slice_part(
    positions: NDArray[np.float64], start: float, stop: float, *, count: int
) -> NDArray[np.int64]:
    """Return in which of so many equal parts of a slice each of its positions lies."""
    share = (positions - start) / (stop - start)
    return np.clip((share * count).astype(np.int64), 0, count - 1)


def check_thresholds(thresholds: Sequence[float]) -> None:
    """Accept at least one threshold."""
    if not thresholds or not all(0 <= q <= 1 for q in thresholds):
        raise BadInput(
            f"thresholds are {tuple(thresholds)}; accepted is at least one number, all in [0, 1]"
        )


def calibrates(*, labels: int, alpha: float) -> str:
    """Say what a calibration is for: sets of labels, or intervals if there are no labels."""
    return f"calibrates prediction {'sets' if labels else 'intervals'} at {1 - alpha:.0%} coverage"


@dataclass(frozen=True)
class Evidence(ABC):
    """The answers about one threshold. Without answers nothing but the threshold can be asked."""

    threshold: float
    answers: int

    @property
    @abstractmethod
    def coverage(self) -> float:
        """An unbiased estimate of coverage at the threshold."""

    @abstractmethod
    def error(self, level: float) -> float:
        """The standard error of the estimate, which may be that at coverage `level`."""

    @abstractmethod
    def above(self, level: float) -> float:
        """The probability of an estimate as high or higher if coverage is `level`."""

    @abstractmethod
    def below(self, level: float) -> float:
        """The probability of an estimate as low or lower if coverage is `level`."""


@dataclass(frozen=True)
class Alarm:
    """The log-evidence that coverage fell below a level, and the log-evidence that is an alarm."""

    log_evidence: float
    needed: float

    @property
    def raised(self) -> bool:
        return self.log_evidence >= self.needed


@dataclass(frozen=True)
class BitEvidence(Evidence):
    """Randomised bits, `ones` of them equal to one: a binomial count."""

    ones: int
    channel: Bit

    @property
    def coverage(self) -> float:
        return (self.ones / self.answers - float(self.channel.spill)) / self._gain

    def error(self, level: float) -> float:
        # Never 0, even if all answers are equal.
        rate = (self.ones + 1) / (self.answers + 2)
        return math.sqrt(rate * (1 - rate) / self.answers) / self._gain

    def above(self, level: float) -> float:
        # Loading scipy takes longer than anything else an owner's command does.
        from scipy.special import bdtrc

        return float(bdtrc(self.ones - 1, self.answers, self._rate(level)))

    def below(self, level: float) -> float:
        from scipy.special import bdtr

        return float(bdtr(self.ones, self.answers, self._rate(level)))

    @property
    def _gain(self) -> float:
        return float(self.channel.hit) - float(self.channel.spill)

    def _rate(self, level: float) -> float:
        """The probability of a one at coverage `level`."""
        return float(self.channel.spill) + self._gain * level


@dataclass(frozen=True)
class CountEvidence(Evidence):
    """A count of records with noise of this total variance, treated as normal."""

    count: int
    variance: float

    @property
    def coverage(self) -> float:
        return self.count / self.answers

    def error(self, level: float) -> float:
        """The standard error from the noise and from the sampling of records."""
        return math.sqrt(self.variance + self.answers * level * (1 - level)) / self.answers

    def above(self, level: float) -> float:
        return self._tail((self.coverage - level) / self.error(level))

    def below(self, level: float) -> float:
        return self._tail((level - self.coverage) / self.error(level))

    @staticmethod
    def _tail(z: float) -> float:
        return math.erfc(z / math.sqrt(2)) / 2
