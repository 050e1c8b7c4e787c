"""CARD's backend: Laplace noise on every cumulative count, and an offset against all of it."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from confide.aggregator.quantiles.base import Privacy, PureMechanism
from confide.aggregator.quantiles.histogram import Histogram
from confide.aggregator.quantiles.noise import ONE, LaplaceTail
from confide.protocol.exact.exponentials import exp_below, float_up, log_up
from confide.protocol.exact.sampling import Entropy


@dataclass(frozen=True, kw_only=True)
class LaplaceCounts(PureMechanism):
    """The first bin with N_b + Z_b >= r + offset (CARD section 5); the last bin if there is none.

    Z_b is discrete Laplace noise of scale B/epsilon.

    Privacy. A bit moves by a factor E at most, E^B <= e^epsilon. If all N_b - r rise by 0 or 1,
    every bit grows likelier; an outcome needs up to B - 1 bits off (the last bin has none) or fewer
    off and one on, so it moves by at most E^(B - 1).

    Guarantee. A bin with N_b <= r - 1 answers only if Z_b > offset, and there are at most B - 1 of
    them: the offset is the least with (B - 1) P(Z > offset) <= beta, for the discrete noise and one
    side. `published_offset` is CARD's.
    """

    name = "laplace-counts"
    # Every count has its own share of epsilon, so that few bins give the smaller sets.
    usual_bins = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.failure * ONE < (self.bins - 1) * self.noise.tail[-1]:
            raise self.unreachable()

    @cached_property
    def noise(self) -> LaplaceTail:
        return LaplaceTail(exp_below(self.epsilon / self.bins))

    @cached_property
    def privacy(self) -> Privacy:
        loss = Fraction(log_up(self.noise.worst)) * (self.bins - 1)
        return Privacy(self.adjacency, epsilon=float_up(loss))

    def offset(self, count: int) -> int:
        """The least offset that `count` noises all stay below, except with probability beta."""
        return next(
            x for x, tail in enumerate(self.noise.tail) if count * tail <= self.failure * ONE
        )

    @cached_property
    def raised(self) -> int:
        return self.offset(self.bins - 1)

    def inflation(self, *, n: int, rank: int) -> int:
        """The first bin with N_b >= r + raised + offset(1) answers.

        That fails only if its own noise is below -offset(1).
        """
        return self.raised + self.offset(1)

    def choose(self, histogram: Histogram, rank: int, entropy: Entropy) -> int:
        answers = self.noise.exceeds(rank + self.raised - histogram.cumulative[:-1], entropy)
        return int(np.argmax(answers)) if answers.any() else self.bins - 1

    def law(self, histogram: Histogram, rank: int) -> list[Fraction]:
        self.check(histogram, rank)
        law, silent = [], Fraction(1)
        for count in histogram.cumulative[:-1]:
            answers = self.noise.probability(rank + self.raised - int(count))
            law.append(silent * answers)
            silent *= 1 - answers
        return [*law, silent]
