"""Betting tests of many hypotheses on the same reports, in blocks, all at once.

A payoff d >= -1 of a report has a mean of at most 0 under the hypothesis. A test starts with a
capital of 1 and bets a share of it on every report: capital = prod(1 + bet_i d_i), a
supermartingale, so it ever reaches 1/delta with probability at most delta (Ville). Bets depend on
earlier reports only, whose order must be independent of their values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]

# The most blocks in which reports are bet on. Blocks get shorter towards the end, where the aim
# changes fastest.
BLOCKS = 128
# Sums of this many powers of the payoffs bound the capital that a block earns.
POWERS = 4
# The most of its capital that a test bets on a report.
MOST_BET = 0.5


def block_ends(n: int) -> NDArray[np.int64]:
    """The reports after which bets change: 0 first, n last.

    What is left after block b of B is a share (1 - b/B)^2.
    """
    left = (1 - np.arange(BLOCKS + 1) / BLOCKS) ** 2
    return np.unique(np.rint(n * (1 - left)).astype(np.int64))


@dataclass(frozen=True)
class Payoffs:
    """What the reports of every block would pay, for every hypothesis.

    `sums` has the shape (powers, hypotheses, blocks): the sums of d, d^2, d^3 and d^4 over a block.
    Payoffs lie in [-1, most].
    """

    sums: Floats
    sizes: NDArray[np.int64]
    most: float

    @classmethod
    def together(cls, parts: "Sequence[Payoffs]") -> "Payoffs":
        """Those of the same blocks of reports for several lots of hypotheses, one after another."""
        sums = np.concatenate([one.sums for one in parts], axis=1)
        return cls(sums, parts[0].sizes, parts[0].most)


@dataclass
class Capital:
    """The capital of every hypothesis, and what its reports have shown so far."""

    log: Floats
    largest_bet: Floats
    first: Floats
    second: Floats
    seen: int = 0

    def variance(self, prior: float) -> Floats:
        """The variance of payoffs so far, with one more report at the prior."""
        spread = self.second - self.first**2 / max(self.seen, 1)
        return (np.maximum(spread, 0.0) + prior) / (self.seen + 1)

    def earn(self, bets: Floats, sums: Floats, size: int) -> None:
        """Take in a block.

        log(1 + y) >= y - y^2/2 + y^3/3 - c y^4/4 for y >= -bet, with c = 1 + 4/5 bet/(1 - bet): the
        difference grows with y where y > 0, and for y < 0 the series of the logarithm has terms of
        at most 4/5 bet^i y^4/4. So the capital is at most that of the bets, whatever the sums hide.
        """
        fourth = bets**4 / 4 * (1 + 0.8 * bets / (1 - bets))
        self.log = (
            self.log
            + bets * sums[0]
            - bets**2 / 2 * sums[1]
            + bets**3 / 3 * sums[2]
            - fourth * sums[3]
        )
        self.largest_bet = np.maximum(self.largest_bet, bets)
        self.first, self.second = self.first + sums[0], self.second + sums[1]
        self.seen += size


def aimed(log_share: Floats, variance: Floats, left: Floats | int) -> Floats:
    """The bet that reaches the goal most probably, for payoffs of this variance and mean 0.

    phi(Phi^-1(w)) / (w s sqrt(left)), where w is the share of the goal that the capital is: the
    hedge of a claim that pays the goal or nothing after the reports that are left.
    """
    share = np.exp(np.minimum(np.maximum(log_share, -700.0), -1e-12))
    z = ndtri(share)
    # Far below the goal phi(z)/w is |z| within 1/|z|, and w would underflow in the quotient.
    ratio = np.where(z < -30, -z, np.exp(-(z**2) / 2 - np.log(share)) / math.sqrt(2 * math.pi))
    return np.asarray(ratio / np.sqrt(variance * left), dtype=np.float64)


def betting_evidence(
    payoffs: Payoffs, *, delta: float, max_corrupt: int = 0
) -> tuple[Floats, Floats]:
    """The log-capital of every hypothesis and the log-capital needed, after the best block.

    Replacing an honest report by a lie multiplies the capital by at most (1 + bet most) / (1 -
    bet), so the largest of those factors so far is needed `max_corrupt` times more, and bets stay
    below sqrt(2 log(1/delta) / (n v)), at which that costs least. The liars may be chosen by what
    they would have reported; what they report may not depend on honest reports that come later in
    the order.
    """
    hypotheses = payoffs.sums.shape[1]
    n, goal = int(payoffs.sizes.sum()), math.log(1 / delta)
    lies = min(max_corrupt, n)
    prior = ((1 + payoffs.most) / 2) ** 2
    nothing = np.zeros(hypotheses)
    capital = Capital(nothing, nothing, nothing, nothing)
    best, needed = nothing.copy(), np.full(hypotheses, goal)
    margin = np.full(hypotheses, -math.inf)
    bound: Floats | float = MOST_BET
    aim: Floats | float = goal
    now: Floats | float = goal
    # The sums of a block side by side.
    blocks = np.ascontiguousarray(np.moveaxis(payoffs.sums, 2, 0))
    for sums, size in zip(blocks, payoffs.sizes.tolist(), strict=True):
        variance = capital.variance(prior)
        if max_corrupt:
            bound = np.minimum(MOST_BET, np.sqrt(2 * goal / (n * variance)))
            aim = goal + max_corrupt * gain(bound, payoffs.most)
        bets = np.minimum(aimed(capital.log - aim, variance, n - capital.seen), bound)
        # Who has won stops.
        capital.earn(np.where(margin >= 0, 0.0, bets), sums, size)
        if capital.seen < lies:
            continue
        if lies:
            now = goal + lies * gain(capital.largest_bet, payoffs.most)
        better = capital.log - now > margin
        best, needed = np.where(better, capital.log, best), np.where(better, now, needed)
        margin = np.maximum(margin, capital.log - now)
    return best, needed


def gain(bets: Floats, most: float) -> Floats:
    """The log of what a lie multiplies the capital by."""
    return np.asarray(np.log1p(bets * most) - np.log1p(-bets), dtype=np.float64)
