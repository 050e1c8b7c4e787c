"""The default mechanism: an exponential mechanism on ranks.

Its slope is steeper below the target, where it protects coverage.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from confide.aggregator.quantiles.averaged import Losses
from confide.aggregator.quantiles.base import Privacy, PureMechanism
from confide.aggregator.quantiles.histogram import Histogram, check_rank
from confide.aggregator.quantiles.weights import (
    START,
    bin_weights,
    exact_law,
    falling,
    margin,
    pick,
    worst_ratio,
)
from confide.protocol.errors import BadInput
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import Entropy, Integers

# Share of epsilon on bins below the target. The mean excess in ranks is about (L - 1)/a + 1/b for
# slopes a + b = epsilon and L = log(bins/beta); its best share, sqrt(L - 1)/(1 + sqrt(L - 1)), is
# 0.71 to 0.82 for L from 7 to 21.
LOWER_SHARE = 0.75


@dataclass(frozen=True, kw_only=True)
class RankExponential(PureMechanism):
    """An exponential mechanism with weights by the distance in ranks from the target t.

    Bin j is drawn with weight low(t - N_j) if it ends before rank t, high(N_{j-1} - t + 1) if it
    starts after it, and low(0) = high(0) = 2^40 if it holds it; t = r - 1 + margin, or the rank r
    itself if there is no beta. The last bin holds all ranks above as well.

    Privacy. low falls by at most a factor A a step, high by at most B, A B <= e^epsilon. Let all
    N_j - t rise by 0 or 1. A bin below t comes nearer, or passes t: its weight grows by at most A
    (from low(1) to high(1) is low(1) to low(0) and less). A bin that holds t or lies above moves
    away: its weight falls by at most B. So every weight, hence the total, changes by a factor in
    [1/B, A], and every probability by one in [1/(A B), A B]. Falling counts are the same pair read
    backwards.

    Guarantee. A bin with N_j <= r - 1 has weight at most low(margin); see `weights.margin`. Large
    ties are one bin that holds t with full weight, which the plain utility -|N_j - t| would not
    give it. Without a beta coverage is averaged over the draws (`averaged`), which is the default:
    the rank then lies about log(bins) / (0.75 epsilon) above the non-private one, for any n.
    """

    name = "rank-exponential"
    averages = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta and margin(self.low, bins=self.bins, beta=self.failure) is None:
            raise self.unreachable()

    @cached_property
    def low(self) -> list[int]:
        return falling(START, exp_below(LOWER_SHARE * self.epsilon))

    @cached_property
    def high(self) -> list[int]:
        return falling(START, exp_below(self.epsilon) / exp_below(LOWER_SHARE * self.epsilon))

    @cached_property
    def margin(self) -> int:
        """Ranks from r - 1 up to the target."""
        if self.beta is None:
            return 1
        found = margin(self.low, bins=self.bins, beta=self.failure)
        assert found is not None
        return found

    @cached_property
    def privacy(self) -> Privacy:
        return Privacy(
            self.adjacency, epsilon=log_up(worst_ratio(self.low) * worst_ratio(self.high))
        )

    def rank(self, *, n: int, alpha: float) -> int:
        if self.beta is not None:
            return super().rank(n=n, alpha=alpha)
        return check_rank(self.averaged_rank(n=n, alpha=alpha), n)

    def averaged_rank(self, *, n: int, alpha: float | Fraction) -> int:
        if not self._losses.reaches(alpha):
            raise BadInput(
                f"alpha {alpha} cannot be reached with epsilon {self.epsilon} and {self.bins} "
                "bins; accepted is a larger epsilon"
            )
        return self._losses.marginal_rank(n=n, alpha=alpha)

    def pac_rank(self, *, n: int, alpha: float | Fraction, delta: float) -> int:
        if self.beta is not None:
            return super().pac_rank(n=n, alpha=alpha, delta=delta)
        return self._losses.pac_rank(n=n, alpha=alpha, delta=delta)

    @cached_property
    def _losses(self) -> Losses:
        return Losses(self.low, self.bins)

    def inflation(self, *, n: int, rank: int) -> int | None:
        """Except with probability beta, N_{j-1} <= t + up - 2.

        So the threshold is at most the score of rank t + up - 1. Without a beta: the mean of the
        ranks above t is a mean of distances d under weights high(d), of at most m - 1 bins, and 0
        under weight low(0) or more. It is at most max d h(d), h(d) = (m - 1) high(d) / ((m - 1)
        high(d) + low(0)): for any x above that, high(d) (m - 1)(d - x) <= x low(0) for every d, and
        summed over bins the mean is at most x.
        """
        if self.beta is None:
            # Beyond the table's end the weight stays, so only the furthest rank counts there.
            furthest = max(n + 1 - rank, 0)
            reached = [*enumerate(self.high[: furthest + 1])]
            if furthest >= len(self.high):
                reached.append((furthest, self.high[-1]))
            others = ((d, (self.bins - 1) * weight) for d, weight in reached)
            return max(-(-d * weight // (weight + START)) for d, weight in others)
        up = margin(self.high, bins=self.bins, beta=self.failure)
        return None if up is None else self.margin + up - 2

    @cached_property
    def _tables(self) -> tuple[Integers, Integers]:
        return np.array(self.low), np.array(self.high[1:] or self.high)

    def weights(self, histogram: Histogram, rank: int) -> Integers:
        low, after = self._tables
        return bin_weights(histogram.cumulative, rank - 1 + self.margin, low=low, after=after)

    def law(self, histogram: Histogram, rank: int) -> list[Fraction]:
        self.check(histogram, rank)
        return exact_law(self.weights(histogram, rank))

    def choose(self, histogram: Histogram, rank: int, entropy: Entropy) -> int:
        return pick(self.weights(histogram, rank), entropy)
