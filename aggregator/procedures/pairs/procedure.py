"""Class-conditional bits: a threshold for every label, where label, features and bit are private.

A report is a symbol for (y, 1{S <= q_y}). With its unbiased weights w, Z = w(y, 1) - (1 - alpha)
(w(y, 0) + w(y, 1)) has mean P(y) (F_y(q_y) - (1 - alpha)), where F_y is the coverage of records of
label y, so betting on Z certifies q_y. Every report tests all labels.

Two search rounds tell where to begin. Five stages then ask one threshold each of every label, by
rules in `place`, and bet on fresh reports. What they prove is in `stages`.
"""

import math
from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from confide.aggregator.procedures.class_certificate import class_certificate
from confide.aggregator.procedures.labels.betting import POWERS, Payoffs, block_ends
from confide.aggregator.procedures.ladder import LOGIT_REACH
from confide.aggregator.procedures.ladder_walk import check_promise
from confide.aggregator.procedures.pairs.curve import ClassCurve, Counts, class_curves
from confide.aggregator.procedures.pairs.place import LabelAhead, place
from confide.aggregator.procedures.pairs.stages import NOTHING, Levels, decide_all
from confide.protocol.certificate import (
    LIARS,
    LocalCertificate,
    Stratum,
)
from confide.protocol.channels.base import LabelChannel
from confide.protocol.methods.labels.pairs import PairProcedure, PairQuery, PairTally, PairTerms
from confide.protocol.plan import Plan

Floats = NDArray[np.float64]

SEARCH_SHARES = (0.05, 0.07)
STAGE_SHARES = (0.13, 0.18, 0.18, 0.18, 0.21)
# What is left after each stage.
LEFT = tuple(sum(STAGE_SHARES[i + 1 :]) for i in range(len(STAGE_SHARES)))
SEARCH_THRESHOLDS = 12
LOGITS = (-LOGIT_REACH, LOGIT_REACH)


def of_plan(plan: Plan) -> PairProcedure:
    """Make the procedure of a plan of this method."""
    terms = PairTerms.of(plan.terms)
    return class_conditional(
        channel=terms.make_channel(labels=plan.labels),
        labels=plan.labels,
        alpha=plan.alpha,
        delta=terms.delta,
        n=plan.expected_records,
        max_corrupt=terms.max_corrupt,
        joint=terms.joint,
        class_floor=terms.class_floor,
    )


def class_conditional(
    *,
    channel: LabelChannel,
    labels: int,
    alpha: float,
    delta: float,
    n: int,
    max_corrupt: int = 0,
    joint: bool = False,
    class_floor: int = 0,
) -> PairProcedure:
    """Search and certify a threshold for every label; `n` is the number of records expected.

    Each label fails with probability at most delta; if `joint`, all together do, and delta is
    divided evenly. A label with fewer than `class_floor` records, as the weights of the search
    estimate them, keeps threshold 1.
    """
    check_promise(alpha, delta, max_corrupt)
    each = delta / labels if joint else delta
    seen = [_SeenOfLabel(channel, label, alpha=alpha) for label in range(labels)]
    start = yield from _searched(channel, seen, alpha=alpha)
    rare = [max(one.records, 0.0) < class_floor * sum(SEARCH_SHARES) for one in seen]
    levels = [Levels(each) for _ in seen]
    for share, left in zip(STAGE_SHARES, LEFT, strict=True):
        placed = [
            NOTHING if skip else place(curve, own, one.ahead(n, share, left), alpha=alpha)
            for own, curve, one, skip in zip(levels, _curves(seen, alpha), seen, rare, strict=True)
        ]
        stop = start + share if left else 1.0
        tally = yield PairQuery(channel, start, stop, (tuple(asked.threshold for asked in placed),))
        payoffs = [
            one.add(tally, (asked.threshold,)) for one, asked in zip(seen, placed, strict=True)
        ]
        tests = zip(levels, placed, payoffs, strict=True)
        decide_all(tests, rest=round(n * left), max_corrupt=max_corrupt)
        start = stop
    return _certificate(
        seen, levels, rare, alpha=alpha, delta=delta, joint=joint, max_corrupt=max_corrupt
    )


def _searched(
    channel: LabelChannel, seen: "list[_SeenOfLabel]", *, alpha: float
) -> Generator[PairQuery, PairTally, float]:
    """Run the search rounds; returns where the records not yet asked begin."""
    start, windows = 0.0, [LOGITS] * len(seen)
    for share in SEARCH_SHARES:
        asked = [expit(np.linspace(*window, SEARCH_THRESHOLDS)) for window in windows]
        rows = tuple(tuple(row) for row in np.array(asked).T.tolist())
        tally = yield PairQuery(channel, start, start + share, rows)
        for one, thresholds in zip(seen, asked, strict=True):
            one.add(tally, tuple(thresholds.tolist()))
        start += share
        windows = [curve.window(1 - alpha / 2) for curve in _curves(seen, alpha)]
    return start


def _curves(seen: "list[_SeenOfLabel]", alpha: float) -> list[ClassCurve]:
    return class_curves([one.counts() for one in seen], level=1 - alpha / 2)


class _SeenOfLabel:
    """What all reports so far say of one label."""

    def __init__(self, channel: LabelChannel, label: int, *, alpha: float) -> None:
        self.channel, self._label, self._alpha = channel, label, alpha
        scale = float(channel.hit - channel.spill)
        self._likely = (1 - float(channel.spill)) / scale
        self._unlikely = -float(channel.spill) / scale
        self._rows: list[tuple[float, int, int, int]] = []
        self.records, self.reports = 0.0, 0

    def add(self, tally: PairTally, thresholds: tuple[float, ...]) -> Payoffs:
        """Take in the reports of a round; return the payoffs Z of its reports, scaled."""
        supports = self.channel.supports(tally.reports)
        zeros, ones = (supports[:, 2 * self._label + bit] for bit in (0, 1))
        zero, one = (np.where(own, self._likely, self._unlikely) for own in (zeros, ones))
        payoff = self._alpha * one - (1 - self._alpha) * zero
        self.records += float((zero + one).sum())
        self.reports += len(payoff)
        for part, q in enumerate(thresholds):
            mine = tally.parts == part
            count = int(mine.sum()), int(ones[mine].sum()), int(zeros[mine].sum())
            self._rows.append((q, *count))
        worst = (1 - self._alpha) * self._likely - self._alpha * self._unlikely
        most = (self._alpha * self._likely - (1 - self._alpha) * self._unlikely) / worst
        return _summed(payoff / worst, most)

    @property
    def _share(self) -> float:
        """The share of records that have this label, which is never taken as 0."""
        return max(self.records, 1.0) / max(self.reports, 1)

    def ahead(self, n: int, share: float, left: float) -> LabelAhead:
        """What the reports of a stage, and those after it, will show."""
        whole = self.error(n)
        return LabelAhead(whole / math.sqrt(share), whole / math.sqrt(left) if left else math.inf)

    def error(self, n: int) -> float:
        """The standard error of the coverage that n reports show half-way from the target to 1."""
        hit, spill, share = float(self.channel.hit), float(self.channel.spill), self._share
        parts = ((self._alpha, 1 - self._alpha / 2), (1 - self._alpha, self._alpha / 2))
        rates = [(weight, spill + (hit - spill) * share * own) for weight, own in parts]
        variance = sum(weight**2 * rate * (1 - rate) for weight, rate in rates)
        return math.sqrt(variance / max(n, 1)) / ((hit - spill) * share)

    def counts(self) -> Counts:
        """What the curve is fitted to."""
        q, reports, ones, zeros = np.array(self._rows, dtype=np.float64).T
        hit, spill = float(self.channel.hit), float(self.channel.spill)
        return Counts(q, reports, ones, zeros, hit, spill, min(self._share, 1.0))


def _summed(payoffs: Floats, most: float) -> Payoffs:
    """The sums of the powers of payoffs over blocks, as the betting test takes them."""
    ends = block_ends(len(payoffs))
    if len(payoffs) == 0:
        return Payoffs(np.zeros((POWERS, 1, 0)), np.zeros(0, dtype=np.int64), most)
    sums = [np.add.reduceat(payoffs**power, ends[:-1]) for power in range(1, POWERS + 1)]
    return Payoffs(np.array(sums)[:, None, :], np.diff(ends), most)


def _certificate(
    seen: list[_SeenOfLabel],
    levels: list[Levels],
    rare: list[bool],
    *,
    alpha: float,
    delta: float,
    joint: bool,
    max_corrupt: int,
) -> LocalCertificate:
    n, channel = seen[0].reports, seen[0].channel
    strata = []
    for label, (one, own, skipped) in enumerate(zip(seen, levels, rare, strict=True)):
        about = f"about {max(one.records, 0.0):.0f}"
        reason = f"too few reports: {n} in all, of which {about} are of this label"
        if skipped:
            reason = f"too few records: {about}, fewer in the search than the plan asks for"
        strata.append(
            Stratum(
                name=str(label),
                threshold=own.certified,
                n=n,
                delta=own.delta,
                rungs=tuple(own.rungs),
                reason=reason if own.certified >= 1 else None,
            )
        )
    return class_certificate(
        strata,
        channel,
        method=PairTerms.method,
        variant=PairTerms.variants[0],
        alpha=alpha,
        delta=delta,
        n=n,
        max_corrupt=max_corrupt,
        joint=joint,
        liars=LIARS,
    )
