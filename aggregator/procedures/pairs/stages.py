"""What may still be tested of the threshold of one label, at which level, and the tests of a stage.

Every threshold q below what is certified has a level L(q), which is delta to begin with. A stage
that asks q' multiplies the levels of q' and of all thresholds above it by the capital E >= 0 that
betting on its reports earned, which has mean at most 1 given the past if F(q') < 1 - alpha. Where L
has reached 1 at all thresholds from q up to what was certified, q is certified.

For a false threshold q, every stage that multiplies L(q) asked a false q' <= q, so L(q) is a
supermartingale, whatever decides where to ask, and reaches 1 with probability at most delta.
Something false is certified only if that happens to the false thresholds next to the true quantile.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.labels.betting import (
    MOST_BET,
    Capital,
    Payoffs,
    aimed,
    gain,
)
from confide.protocol.certificate import LabelRung

Floats = NDArray[np.float64]

# Of its capital a stage does not bet this share, so that a campaign which asked too low can still
# certify something. The last stage bets everything.
KEPT = 0.06


@dataclass(frozen=True)
class AskedOfLabel:
    """A threshold to ask, and the share of its capital that its stage bets on passing at once."""

    threshold: float
    early: float


NOTHING = AskedOfLabel(1.0, 1.0)


@dataclass
class Levels:
    """The levels of the thresholds of one label, as logarithms, and what is certified."""

    delta: float
    certified: float = 1.0
    rungs: list[LabelRung] = field(default_factory=list)
    # Thresholds asked and not certified, and the log-capital that each has moved levels by.
    moved: list[tuple[float, float]] = field(default_factory=list)
    # The most that lies may have added to a level, as a logarithm.
    lies: float = 0.0

    def log_level(self, threshold: float) -> float:
        """The least level of this threshold and all above that are not certified."""
        breaks = [threshold, *(q for q, _ in self.moved if q > threshold)]
        return math.log(self.delta) + min(
            sum(log for q, log in self.moved if q <= at) for at in breaks
        )

    def move(self, threshold: float, capital: float, needed: float) -> None:
        """Take in a stage: its log-capital, and the log-capital that certifies its threshold."""
        self.rungs.append(LabelRung(threshold, capital, needed))
        self.lies = max(self.lies, needed + self.log_level(threshold))
        self.moved.append((threshold, capital))
        passed = threshold if capital >= needed else 1.0
        sure = [q for q, _ in self.moved if self.log_level(q) >= self.lies]
        self.certified = min(self.certified, passed, *sure)
        self.moved = [one for one in self.moved if one[0] < self.certified]


@dataclass(frozen=True, kw_only=True)
class StageBets:
    """The bets of a stage on all labels at once.

    `goals` is the log-capital that each label needs. `early` is the share of its capital that is
    bet on having it when the stage ends, and all but `KEPT` of the rest is bet on having it when
    about `rest` more reports are in. If none are to come, all is bet on the end of the stage.

    Replacing an honest report by a lie multiplies the capital, and every level, by at most (1 + bet
    most) / (1 - bet), so the largest of those factors is needed `max_corrupt` times more, at least
    `lies` as it was in earlier stages; and bets stay below sqrt(2 goal / (n v)), at which that
    costs least. The liars may be chosen by what they would have reported; what they report may not
    depend on honest reports that come later in the order.
    """

    goals: Floats
    early: Floats
    lies: Floats
    rest: int
    max_corrupt: int = 0

    def capital(self, payoffs: Payoffs) -> tuple[Floats, Floats]:
        """The log-capital at the end, or when it was enough, and what was needed, lies included."""
        left = np.array([[0.0], [self.rest]]) + payoffs.sizes.sum()
        kept = KEPT if self.rest else 0.0
        early = np.minimum(self.early, 1 - kept) if self.rest else np.ones_like(self.goals)
        shares = np.array([early, np.maximum(1 - kept - early, 0.0)])
        nothing = np.zeros_like(shares)
        accounts = Capital(nothing, nothing, nothing[0], nothing[0])
        prior = ((1 + payoffs.most) / 2) ** 2
        bound, price = np.full_like(shares, MOST_BET), np.zeros_like(self.goals)
        needed, capital = self.goals + self.lies, nothing[0]
        # Logarithms, because many lies need more than a number can hold.
        start = np.log(np.maximum([np.full_like(early, kept), *shares], 1e-300))
        # The sums of a block side by side.
        blocks = np.ascontiguousarray(np.moveaxis(payoffs.sums, 2, 0))
        for sums, size in zip(blocks, payoffs.sizes.tolist(), strict=True):
            variance = accounts.variance(prior)
            if self.max_corrupt:
                bound = np.minimum(
                    MOST_BET, np.sqrt(2 * np.maximum(self.goals, 1) / (left * variance))
                )
                price = self._price(bound, payoffs.most)
            share = _of_goal(start[0], start[1:] + accounts.log, goals=self.goals + price)
            bets = np.minimum(aimed(share, variance, left - accounts.seen), bound)
            # Who has won stops.
            accounts.earn(np.where((capital >= needed) | (shares == 0), 0.0, bets), sums, size)
            if self.max_corrupt:
                needed = self.goals + self._price(accounts.largest_bet, payoffs.most)
            capital = np.logaddexp(start[0], np.logaddexp(*(start[1:] + accounts.log)))
        return capital, needed

    def _price(self, bets: Floats, most: float) -> Floats:
        """What lies may have earned of the levels."""
        return np.maximum(self.lies, self.max_corrupt * gain(bets, most).max(axis=0))


def decide_all(
    tests: Iterable[tuple[Levels, AskedOfLabel, Payoffs]], *, rest: int, max_corrupt: int
) -> None:
    """Take in a stage: what was asked of every label, and what its reports pay."""
    due = [one for one in tests if one[1].threshold < 1 and len(one[2].sizes)]
    if not due:
        return
    goals = np.array([-levels.log_level(asked.threshold) for levels, asked, _ in due])
    early = np.array([asked.early for _, asked, _ in due])
    lies = np.array([levels.lies for levels, _, _ in due])
    stage = StageBets(goals=goals, early=early, lies=lies, rest=rest, max_corrupt=max_corrupt)
    capital, needed = stage.capital(Payoffs.together([payoffs for _, _, payoffs in due]))
    for (levels, asked, _), found, least in zip(due, capital, needed, strict=True):
        levels.move(asked.threshold, float(found), float(least))


def _of_goal(kept: Floats, held: Floats, *, goals: Floats) -> Floats:
    """The share that two accounts have of what they want; all are logarithms.

    The first wants the goal, less what the second has and what is kept; the second wants all.
    """
    others = np.exp(np.minimum(np.logaddexp(kept, held[1]) - goals, 0.0))
    wanted = goals + np.array([np.log(np.maximum(1 - others, 1e-12)), np.zeros_like(goals)])
    return np.asarray(held - wanted)
