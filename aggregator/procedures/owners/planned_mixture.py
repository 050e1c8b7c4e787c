"""Answers in the planned mixture of owners, whichever of them answer a stage of bits.

The planned shares are those of the reports of the first round, or equal. A stage of N trials draws
the owner of trial j at the point j + u_j of [0, N), which owners divide in those shares; each trial
takes an answer of its owner that no other took, and counts as a zero where there is none left. So
the trials are independent, and under the hypothesis the mean of their sum is at most N m0: the sum
is Poisson-binomial, and `Search(unequal=True)` tests it. What is drawn depends on sizes and on
public numbers that were fixed with the plan, never on answers.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.bits.asked import Asked
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bit_rounds import Rounds
from confide.protocol.methods.owner_terms import usual_floor
from confide.protocol.methods.parts import MOST_PARTS, BitTally

# Below so many trials the bound of Hoeffding's theorem is not relied on.
FEWEST = 20
# The answers of an owner beyond its share of the trials, with which it has enough wherever the
# points fall.
POINTS = 2


def left_reason(number: int, share: float, came: int) -> str:
    """Why nothing more can be certified for the planned mixture; owners have numbers from 1."""
    if not number:
        return (
            "a round tells no owners apart, whose mixture is planned: nobody answered it, "
            f"reports do not say whose they are, or there are more than {MOST_PARTS:,} owners"
        )
    left = f"answered {came} reports of a stage" if came else "left"
    return (
        f"owner {number}, {share:.0%} of the planned mixture, {left}: without more of it nothing "
        "can be certified for that mixture"
    )


@dataclass(frozen=True)
class PlannedMixture:
    """The reports of owners in the first round, and the public seed of what is drawn.

    Their shares are those of their reports; `equal` ones do not depend on how many these are.
    """

    counts: dict[bytes, int]
    seed: bytes = b""
    equal: bool = False

    @classmethod
    def of(cls, first: BitTally, seed: bytes, *, equal: bool = False) -> "PlannedMixture":
        return cls({key: sum(first.of(key).answers) for key in first.keys}, seed, equal)

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of every owner, in the order of their keys."""
        counts = np.ones(len(self.counts)) if self.equal else self._first
        return counts / max(counts.sum(), 1.0)

    def too_few(self, asked: Asked, rounds: Rounds) -> str | None:
        """Why equal shares leave the stages too few trials, by the first round alone; None if not.

        So many are enough that coverage half-way to 1 is certified half the time, as for an owner
        that is tested on its own, and that the smallest stage has the fewest that a stage may have.
        Shares by reports leave nearly all answers to the stages.
        """
        if not self.equal or not self.counts:
            return None
        channel, alpha, first = asked.channel, asked.alpha, self._first
        least, stages = min(rounds.stages), 1 - sum(rounds.search)
        usual = usual_floor(channel.deviation(1 - alpha), alpha=alpha, delta=asked.delta)
        needed = max(FEWEST, math.ceil(usual * least / stages))
        came = first * (least / rounds.search[0])
        worth = self._best(came, channel=channel, alpha=alpha, m0=asked.m0)[1]
        if worth >= needed and not asked.hopeless(int(worth * stages / least)):
            return None
        of_each = math.ceil((needed / len(first) + POINTS) / least)
        return (
            f"owners count alike, and owner {int(first.argmin()) + 1} answered {first.min():.0f} "
            f"of the {first.sum():.0f} reports of the first round: the smallest stage would be "
            f"worth {worth:.0f} trials; needed are {needed}, about {of_each} records of every "
            "owner, and more where reports may be corrupt"
        )

    def trials(self, tally: BitTally, *, channel: Bit, alpha: float, m0: float) -> int:
        """The most informative trials, by the sizes of owners; 0 if none is informative."""
        return self._best(self._came(tally), channel=channel, alpha=alpha, m0=m0)[0]

    def _best(
        self, came: NDArray[np.float64], *, channel: Bit, alpha: float, m0: float
    ) -> tuple[int, float]:
        """These trials where so many answers of every owner came, and what they are worth.

        sqrt(N) (gain alpha/2 - missing m0), at coverage half-way to 1: more trials know more, and
        trials of owners that have no answers left count as zeros. They are worth as many trials of
        which none is missing as know as much.
        """
        shares = self.shares
        if not len(shares) or not came.sum():
            return 0, 0.0
        gain = float(channel.hit - channel.spill) * alpha / 2
        # With so many trials an owner has just enough answers.
        best, most = 0, 0.0
        for n in {int(came.sum()), *np.floor(np.maximum(came - POINTS, 0) / shares).astype(int)}:
            if FEWEST <= n <= came.sum():
                missing = np.maximum(shares - came / n, 0).sum()
                worth = math.sqrt(n) * (gain - missing * m0)
                best, most = (n, worth) if worth > most else (best, most)
        return int(best), (most / gain) ** 2

    def drawn(self, tally: BitTally, trials: int, round_: int) -> BitTally:
        """The tally of so many trials, at the one threshold of a stage."""
        source = self._source(round_)
        points = (np.arange(trials) + _uniform(source, trials)) / max(trials, 1)
        edges = np.cumsum(self.shares)
        owners = np.minimum(np.searchsorted(edges, points, side="right"), len(edges) - 1)
        taken = np.bincount(owners, minlength=len(edges))
        ones = 0
        for key, count in zip(sorted(self.counts), taken.tolist(), strict=True):
            own = tally.of(key)
            ones += _kept(own, count, source)
        return BitTally((trials,), (ones,))

    def missing(self, tally: BitTally) -> tuple[int, float, int]:
        """The number of the owner that lacks most, its share of the plan, and how many came.

        0 if the plan has no owner, or the tally does not keep apart whose reports came.
        """
        if not self.counts or tally.of_nobody:
            return 0, 0.0, 0
        came = self._came(tally)
        lacks = self.shares - came / max(came.sum(), 1.0)
        worst = int(lacks.argmax())
        return worst + 1, float(self.shares[worst]), int(came[worst])

    @property
    def _first(self) -> NDArray[np.float64]:
        return np.array([self.counts[key] for key in sorted(self.counts)], dtype=np.float64)

    def _came(self, tally: BitTally) -> NDArray[np.float64]:
        found = [sum(tally.of(key).answers) for key in sorted(self.counts)]
        return np.array(found, dtype=np.float64)

    def _source(self, round_: int) -> np.random.PCG64:
        """Public random words, the same whenever the campaign is replayed."""
        data = hashlib.sha256(b"planned mixture" + self.seed + round_.to_bytes(4, "big")).digest()
        return np.random.PCG64(int.from_bytes(data, "big"))


def _uniform(source: np.random.PCG64, count: int) -> NDArray[np.float64]:
    words = np.asarray(source.random_raw(count), dtype=np.uint64)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _kept(own: BitTally, wanted: int, source: np.random.PCG64) -> int:
    """The ones among answers chosen at random; all of them if no more came than are wanted."""
    (answers,), (ones,) = own.answers, own.ones
    if wanted >= answers:
        return ones
    words = np.asarray(source.random_raw(answers), dtype=np.uint64)
    # The answers of an owner are alike, so the ones may stand first.
    chosen = np.argpartition(words, wanted)[:wanted] if wanted else np.empty(0, dtype=np.int64)
    return int(np.count_nonzero(chosen < ones))
