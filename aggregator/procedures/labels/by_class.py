"""Class-conditional labels: a threshold for every label, from the reports of all records.

With the unbiased weights w of a report, Z(y, q) = w(y) (1{S(x, y) <= q} - (1 - alpha)) has mean
P(y) (F_y(q) - (1 - alpha)), where F_y is the coverage of records of label y. Betting on Z certifies
F_y(q) >= 1 - alpha for one label, so whatever the frequencies of labels become, its records stay
covered.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from confide.aggregator.procedures.class_certificate import class_certificate
from confide.aggregator.procedures.labels.betting import (
    Floats,
    Payoffs,
    betting_evidence,
    block_ends,
)
from confide.aggregator.procedures.labels.payoffs import Changes, RungTable
from confide.aggregator.procedures.ladder import Ladder, check_ladder, public_ladder
from confide.aggregator.procedures.ladder_walk import check_promise, walk_down
from confide.protocol.certificate import (
    LIARS_IN_ORDER,
    Stratum,
)
from confide.protocol.channels.base import LabelChannel
from confide.protocol.methods.labels.in_clear import InClear
from confide.protocol.methods.labels.query import LabelProcedure, LabelQuery, LabelTally

_ROWS = 1 << 18
# The rungs that are bet on at once: enough to keep arrays long, few enough for their sums to fit.
_RUNGS = 1 << 12
# The scores of one class may lie close together; only the rungs that decide go on cards.
CLASS_RUNGS = 1_600


def class_conditional(
    *,
    channel: LabelChannel,
    alpha: float,
    delta: float,
    max_corrupt: int = 0,
    ladder: Ladder | None = None,
    joint: bool = False,
    class_floor: int = 0,
    shown: InClear | None = None,
) -> LabelProcedure:
    """Walk the ladder down once for every label of the plan.

    Each label fails with probability at most delta; if `joint`, all together do, and delta is
    divided evenly. A label with fewer than `class_floor` records, as the weights estimate them,
    keeps threshold 1.
    """
    check_promise(alpha, delta, max_corrupt)
    ladder = public_ladder(CLASS_RUNGS) if ladder is None else check_ladder(ladder)
    tally = yield LabelQuery(channel, shown=shown)
    # Where the aggregator scores, labels that the plan does not have are one more value.
    labels = channel.k if shown is None else shown.labels
    each = delta / labels if joint else delta
    found = class_payoffs(tally, channel, ladder=ladder, alpha=alpha, labels=labels)
    tested = _tested(found, delta=each, max_corrupt=max_corrupt)
    strata = tuple(
        _stratum(label, *one, delta=each, floor=class_floor) for label, one in enumerate(tested)
    )
    return class_certificate(
        strata,
        channel,
        method="labels",
        variant="class-conditional",
        alpha=alpha,
        delta=delta,
        n=len(tally.reports),
        max_corrupt=max_corrupt,
        joint=joint,
        liars=LIARS_IN_ORDER,
    )


class ClassPayoffs(NamedTuple):
    """An estimate of a label's records, the rungs below 1, and the payoffs Z there."""

    records: float
    thresholds: list[float]
    payoffs: Payoffs


Evidence = tuple[Floats, Floats]


def _tested(
    found: Iterator[ClassPayoffs], *, delta: float, max_corrupt: int
) -> Iterator[tuple[ClassPayoffs, Evidence]]:
    """The evidence for every label; the rungs of several labels are bet on at once."""
    for some in _together(found):
        payoffs = Payoffs.together([one.payoffs for one in some])
        capital, needed = betting_evidence(payoffs, delta=delta, max_corrupt=max_corrupt)
        first = 0
        for one in some:
            own = slice(first, first + len(one.thresholds))
            yield one, (capital[own], needed[own])
            first = own.stop


def _together(found: Iterator[ClassPayoffs]) -> Iterator[list[ClassPayoffs]]:
    """Labels in turn, as many at a time as have some thousands of rungs."""
    some, rungs = [], 0
    for one in found:
        some.append(one)
        rungs += len(one.thresholds)
        if rungs >= _RUNGS:
            yield some
            some, rungs = [], 0
    if some:
        yield some


def _stratum(
    label: int, found: ClassPayoffs, evidence: Evidence, *, delta: float, floor: int
) -> Stratum:
    """The threshold of a label, with the rungs that decide it, or the reason why it is 1."""
    about, n = f"about {max(found.records, 0.0):.0f}", int(found.payoffs.sizes.sum())
    if found.records < floor:
        reason = f"too few records: {about}, the plan asks for {floor}"
        return Stratum(name=str(label), threshold=1.0, n=n, delta=delta, reason=reason)
    threshold, rungs = walk_down(found.thresholds, *evidence)
    reason = f"too few reports: {n} in all, of which {about} are of this label"
    return Stratum(
        name=str(label),
        threshold=threshold,
        n=n,
        delta=delta,
        rungs=rungs[-2:],
        reason=reason if threshold >= 1 else None,
    )


def class_payoffs(
    tally: LabelTally, channel: LabelChannel, *, ladder: Ladder, alpha: float, labels: int
) -> Iterator[ClassPayoffs]:
    """The payoffs of every label.

    Payoffs are scaled to [-1, most]. Rungs at which the label leaves no set are left out.
    """
    scale, spill = float(channel.hit - channel.spill), float(channel.spill)
    likely, unlikely = (1 - spill) / scale, -spill / scale
    worst = max(likely * (1 - alpha), -unlikely * alpha)
    most = max(likely * alpha, -unlikely * (1 - alpha)) / worst
    table, n = RungTable(ladder), len(tally.reports)
    # The labels that the reports support, a row a label.
    supports = np.empty((labels, n), dtype=np.bool_)
    for first in range(0, n, max(1, _ROWS // channel.k)):
        part = slice(first, first + max(1, _ROWS // channel.k))
        supports[:, part] = channel.supports(tally.reports[part])[:, :labels].T
    for label in range(labels):
        changes = Changes(len(ladder), block_ends(n))
        for first in range(0, n, _ROWS):
            part = slice(first, first + _ROWS)
            w = np.where(supports[label, part], likely, unlikely) / worst
            rungs = table.of(tally.scores[part, label]).astype(np.int64)
            blocks = changes.block_of(first, len(w))
            top = np.full(len(w), len(ladder))
            changes.add(top, blocks, before=np.zeros(len(w)), after=w * alpha)
            changes.add(rungs, blocks, before=w * alpha, after=-w * (1 - alpha))
        records = float(np.where(supports[label], likely, unlikely).sum())
        kept, sums = changes.below()
        payoffs = Payoffs(sums, np.diff(changes.ends), most)
        yield ClassPayoffs(records, ladder[kept].tolist(), payoffs)
