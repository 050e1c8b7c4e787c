"""When phones come: as often as planned in a week, by day and night, or all at one time."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput

DAY, WEEK = 86_400.0, 604_800.0

Floats = NDArray[np.float64]


class Arrivals(Protocol):
    """Draws the moments at which phones come between two moments, in order."""

    def draw(self, start: float, stop: float, *, rng: np.random.Generator) -> Floats: ...


@dataclass(frozen=True, kw_only=True)
class Daily:
    """Phones that each come once in a period, at a moment that follows the day.

    They are a Poisson process with rate
    `phones / period (1 + swing cos(2 pi (t - busiest) / DAY))`.
    """

    phones: float
    swing: float = 0.8
    busiest: float = DAY / 2
    period: float = WEEK

    def __post_init__(self) -> None:
        if not (0 < self.phones < math.inf and 0 < self.period < math.inf):
            raise BadInput(
                f"{self.phones} phones come once in {self.period} seconds; accepted are numbers "
                "above 0"
            )
        if not 0 <= self.swing <= 1:
            raise BadInput(f"swing is {self.swing}; accepted is a number from 0 to 1")

    def rate(self, moment: float) -> float:
        """Phones a second at a moment."""
        wave = math.cos(2 * math.pi * (moment - self.busiest) / DAY)
        return self.phones / self.period * (1 + self.swing * wave)

    @property
    def most(self) -> float:
        """Phones a second at the busiest time of the day."""
        return self.phones / self.period * (1 + self.swing)

    def draw(self, start: float, stop: float, *, rng: np.random.Generator) -> Floats:
        """Draw at the greatest rate, and keep each with the share of it that is due (thinning)."""
        count = rng.poisson(self.most * (stop - start))
        moments = np.sort(rng.uniform(start, stop, count))
        wave = np.cos(2 * math.pi * (moments - self.busiest) / DAY)
        kept: Floats = moments[rng.random(count) < (1 + self.swing * wave) / (1 + self.swing)]
        return kept


@dataclass(frozen=True, kw_only=True)
class AtOnce:
    """Phones that all have the same timer: each comes within `spread` seconds after `moment`."""

    phones: int
    moment: float
    spread: float

    def draw(self, start: float, stop: float, *, rng: np.random.Generator) -> Floats:
        moments = np.sort(rng.uniform(self.moment, self.moment + self.spread, self.phones))
        kept: Floats = moments[(moments >= start) & (moments < stop)]
        return kept
