"""Class-conditional bits: a threshold for every label, where label, features and bit are private.

A report is a symbol for (y, 1{S <= q_y}). With its unbiased weights w, Z = w(y, 1) - (1 - alpha)
(w(y, 0) + w(y, 1)) has mean P(y) (F_y(q_y) - (1 - alpha)), where F_y is the coverage of records of
label y, so betting on Z certifies q_y. Every report tests all labels.

Two search rounds place the thresholds, and two stages test them on fresh reports:

- the first stage tests a careful threshold at level (1 - RESERVE) delta;
- if it passed, the second tests a lower threshold at level delta, with fresh capital;
- if it failed, the second tests any threshold at level RESERVE delta;
- where records are so few that no threshold would be likely to pass the first stage, both stages
  together test one threshold at level delta.

If the threshold of the first stage is too low, something false passes with probability at most (1 -
RESERVE) delta + RESERVE delta. If it is not, only the second stage can err, at level delta at most.
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
from confide.aggregator.procedures.pairs.curve import ClassCurve, Estimates, class_curve
from confide.aggregator.procedures.pairs.stages import STAGE_SHARES, StageTests, decide_all
from confide.protocol.certificate import (
    LIARS,
    LocalCertificate,
    Stratum,
)
from confide.protocol.channels.base import LabelChannel
from confide.protocol.methods.labels.pairs import PairProcedure, PairQuery, PairTally, PairTerms
from confide.protocol.plan import Plan

Floats = NDArray[np.float64]

SEARCH_SHARES = (0.1, 0.15)
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
    level, start = 1 - alpha / 2, 0.0
    curves: list[ClassCurve] = []
    for share in SEARCH_SHARES:
        windows = [curve.window(level) for curve in curves] or [LOGITS] * labels
        asked = [expit(np.linspace(*window, SEARCH_THRESHOLDS)) for window in windows]
        start = yield from _ask(channel, seen, asked, start=start, share=share)
        curves = _curves(seen, level)
    rare = [one.records < class_floor * sum(SEARCH_SHARES) for one in seen]
    tests = [StageTests(delta=each, max_corrupt=max_corrupt) for _ in seen]
    for share in STAGE_SHARES:
        placed = [
            1.0 if skip else test.place(curve, one.error(n), share=share, alpha=alpha)
            for test, curve, one, skip in zip(tests, curves, seen, rare, strict=True)
        ]
        stop = min(start + share, 1.0)
        tally = yield PairQuery(channel, start, stop, (tuple(placed),))
        last, due = share == STAGE_SHARES[-1], []
        for test, one, q in zip(tests, seen, placed, strict=True):
            payoffs = one.add(tally, (q,))
            if q < 1 and (whole := test.due(payoffs, last=last)) is not None:
                due.append((test, q, whole))
        decide_all(due)
        curves, start = _curves(seen, level), stop
    return _certificate(
        seen, tests, rare, alpha=alpha, delta=delta, joint=joint, max_corrupt=max_corrupt
    )


def _curves(seen: "list[_SeenOfLabel]", level: float) -> list[ClassCurve]:
    """The curve of every label, whose slope is expected to be near that of all labels."""
    found = [one.estimates() for one in seen]
    weights = np.array([max(one.records, 1.0) for one in seen])
    weights /= weights.sum()
    # The first round asks all labels about the same thresholds.
    first = slice(0, min(SEARCH_THRESHOLDS, *(len(one.thresholds) for one in found)))
    together = Estimates(
        found[0].thresholds[first],
        np.array([one.coverage[first] for one in found]).T @ weights,
        np.array([one.variance[first] for one in found]).T @ weights**2,
    )
    pooled = class_curve(together, level=level)
    return [class_curve(one, level=level, like=pooled) for one in found]


def _ask(
    channel: LabelChannel,
    seen: "list[_SeenOfLabel]",
    asked: list[Floats],
    *,
    start: float,
    share: float,
) -> Generator[PairQuery, PairTally, float]:
    """Run a search round; returns where the records not yet asked begin."""
    rows = tuple(tuple(row) for row in np.array(asked).T.tolist())
    tally = yield PairQuery(channel, start, start + share, rows)
    for one, thresholds in zip(seen, asked, strict=True):
        one.add(tally, tuple(thresholds.tolist()))
    return start + share


class _SeenOfLabel:
    """What all reports so far say of one label."""

    def __init__(self, channel: LabelChannel, label: int, *, alpha: float) -> None:
        self.channel, self._label, self._alpha = channel, label, alpha
        scale = float(channel.hit - channel.spill)
        self._likely = (1 - float(channel.spill)) / scale
        self._unlikely = -float(channel.spill) / scale
        self._rows: list[tuple[float, float, float]] = []
        self.records, self.reports, self._second = 0.0, 0, 0.0

    def add(self, tally: PairTally, thresholds: tuple[float, ...]) -> Payoffs:
        """Take in the reports of a round; return the payoffs Z of its reports, scaled."""
        supports = self.channel.supports(tally.reports)
        zero, one = (
            np.where(supports[:, 2 * self._label + bit], self._likely, self._unlikely)
            for bit in (0, 1)
        )
        payoff = self._alpha * one - (1 - self._alpha) * zero
        self.records += float((zero + one).sum())
        self.reports += len(payoff)
        self._second += float((payoff**2).sum())
        for part, q in enumerate(thresholds):
            mine = payoff[tally.parts == part]
            size = len(mine)
            # One that is missing says nothing.
            self._rows.append(
                (q, float(mine.mean()), float(mine.var() + 1 / size) / size)
                if size
                else (q, 0.0, 1e12)
            )
        worst = (1 - self._alpha) * self._likely - self._alpha * self._unlikely
        most = (self._alpha * self._likely - (1 - self._alpha) * self._unlikely) / worst
        return _summed(payoff / worst, most)

    @property
    def _share(self) -> float:
        """The share of records that have this label, which is never taken as 0."""
        return max(self.records, 1.0) / max(self.reports, 1)

    def error(self, n: int) -> float:
        """The standard error of the coverage that n reports show, given that this is the label."""
        spread = math.sqrt(self._second / max(self.reports, 1)) or 1.0
        return spread / (self._share * math.sqrt(max(n, 1)))

    def estimates(self) -> Estimates:
        """Coverage at all thresholds asked: 1 - alpha and the mean payoff of its records."""
        q, mean, variance = np.array(self._rows).T
        return Estimates(q, 1 - self._alpha + mean / self._share, variance / self._share**2)


def _summed(payoffs: Floats, most: float) -> Payoffs:
    """The sums of the powers of payoffs over blocks, as the betting test takes them."""
    ends = block_ends(len(payoffs))
    if len(payoffs) == 0:
        return Payoffs(np.zeros((POWERS, 1, 0)), np.zeros(0, dtype=np.int64), most)
    sums = [np.add.reduceat(payoffs**power, ends[:-1]) for power in range(1, POWERS + 1)]
    return Payoffs(np.array(sums)[:, None, :], np.diff(ends), most)


def _certificate(
    seen: list[_SeenOfLabel],
    tests: list[StageTests],
    rare: list[bool],
    *,
    alpha: float,
    delta: float,
    joint: bool,
    max_corrupt: int,
) -> LocalCertificate:
    n, channel = seen[0].reports, seen[0].channel
    strata = []
    for label, (one, test, skipped) in enumerate(zip(seen, tests, rare, strict=True)):
        about = f"about {max(one.records, 0.0):.0f}"
        reason = f"too few reports: {n} in all, of which {about} are of this label"
        if skipped:
            reason = f"too few records: {about}, fewer in the search than the plan asks for"
        strata.append(
            Stratum(
                name=str(label),
                threshold=test.threshold,
                n=n,
                delta=test.delta,
                rungs=tuple(test.rungs),
                reason=reason if test.threshold >= 1 else None,
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
