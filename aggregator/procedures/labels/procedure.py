"""LDP-CP-L: labels private, features in clear (Penso et al. 2025, Algorithms 1-2, and beyond).

Every label channel gives X_i(q) = sum of w_i(y) over the labels with S(x_i, y) <= q, unbiased for
coverage at q. Each procedure is a generator that yields one query, is sent the tally and returns a
certificate.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from confide.aggregator.procedures.labels.betting import betting_evidence
from confide.aggregator.procedures.labels.by_class import class_conditional
from confide.aggregator.procedures.labels.payoffs import at_level, coverage_payoffs, x_range
from confide.aggregator.procedures.labels.sweep import noise_aware_threshold
from confide.aggregator.procedures.ladder import Ladder, check_ladder, public_ladder
from confide.aggregator.procedures.ladder_walk import check_promise, walk_down
from confide.aggregator.procedures.levels import nothing_passed, threshold_of
from confide.aggregator.procedures.owners.owner_labels import by_parts
from confide.protocol.certificate import (
    DROPOUTS,
    IID,
    LIARS_IN_ORDER,
    MIXTURE,
    PAC,
    LabelRung,
    Level,
    LocalCertificate,
    promise_of,
)
from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.registry import label_channels
from confide.protocol.errors import BadInput
from confide.protocol.levels import Levels
from confide.protocol.methods.labels.in_clear import InClear
from confide.protocol.methods.labels.query import LabelProcedure, LabelQuery, LabelTally
from confide.protocol.methods.labels.terms import CLASS_CONDITIONAL, LabelTerms
from confide.protocol.methods.owner_terms import PART_VARIANTS
from confide.protocol.plan import Plan

BISECTION_STEPS = 20


def published_delta(*, channel: LabelChannel, n: int, delta: float) -> float:
    """Delta_L = sqrt(log(4/delta) / (2 n h^2)), where h = (1 - beta)/(1 + beta).

    beta = k spill is the uniform noise of k-RR.
    """
    beta = float(channel.k * channel.spill)
    return math.sqrt(math.log(4 / delta) / (2 * n)) * (1 + beta) / (1 - beta)


def published(
    *,
    channel: LabelChannel,
    alpha: float,
    delta: float,
    star: bool = False,
    method: str = "sweep",
    max_corrupt: int = 0,
    shown: InClear | None = None,
) -> LabelProcedure:
    """NACP on k-RR labels: LDP-CP-L (level 1 - alpha - Delta), or L* with `star` (level 1 - alpha).

    `method="sweep"` finds the exact threshold; `method="bisection"` follows the paper, for
    reproduction. `shown` is what reports come with in clear, probabilities unless it is given.
    """
    check_promise(alpha, delta, max_corrupt)
    _check_published(channel, method)
    tally = yield LabelQuery(channel, shown=shown)
    n = len(tally.reports)
    slack = math.inf
    threshold: float | None = None
    if n:
        low, high = x_range(channel)
        slack = published_delta(channel=channel, n=n, delta=delta) + max_corrupt * (high - low) / n
        target = 1 - alpha + slack if star else 1 - alpha
        find = _sweep if method == "sweep" else _bisect
        threshold = find(tally, channel, target=target, slack=slack) if target <= 1 else None
    level = 1 - alpha if star else max(0.0, 1 - alpha - slack)
    reason = None
    if threshold is None or threshold >= 1:
        reason = (
            f"too few reports: Delta is {slack:.3f} with {n} of them, no threshold below 1 reaches "
            "the target"
        )
    return LocalCertificate(
        method="labels",
        variant="published-star" if star else "published",
        kind=PAC,
        threshold=1.0 if threshold is None else threshold,
        level=level,
        alpha=alpha,
        delta=delta,
        n=n,
        channel=channel.name,
        epsilon=channel.epsilon,
        slack=slack if n else None,
        max_corrupt=max_corrupt,
        reason=reason,
    )


def _check_published(channel: LabelChannel, method: str) -> None:
    if not channel.uniform_noise:
        defined = ", ".join(label_channels(uniform_noise=True))
        raise BadInput(
            f"channel is {channel.name}; the published variants are defined for {defined}"
        )
    if method not in ("sweep", "bisection"):
        raise BadInput(f"method is {method!r}; accepted are sweep and bisection")


def _sweep(
    tally: LabelTally, channel: LabelChannel, *, target: float, slack: float
) -> float | None:
    n, spill = len(tally.reports), float(channel.spill)
    goal = n * float(channel.hit - channel.spill) * target
    return noise_aware_threshold(
        tally.scores, channel.supported(tally.reports, tally.scores), goal=goal, spill=spill
    )


def _bisect(tally: LabelTally, channel: LabelChannel, *, target: float, slack: float) -> float:
    """Halve [0, 1] twenty times, or until the estimate lies within slack above the target.

    Returns the threshold of that estimate, or else the upper end.
    """
    n, spill = len(tally.reports), float(channel.spill)
    supported = channel.supported(tally.reports, tally.scores)
    low, high = 0.0, 1.0
    for _ in range(BISECTION_STEPS):
        q = (low + high) / 2
        pairs = np.count_nonzero(tally.scores <= np.float64(q))
        estimate = (np.count_nonzero(supported <= np.float64(q)) - spill * pairs) / (
            n * float(channel.hit - channel.spill)
        )
        if estimate > target + slack:
            high = q
        elif estimate < target:
            low = q
        else:
            return q
    return high


def certified(
    *,
    channel: LabelChannel,
    alpha: float,
    delta: float,
    max_corrupt: int = 0,
    ladder: Ladder | None = None,
    largest_set: int = 0,
    shown: InClear | None = None,
    levels: Levels = (),
) -> LabelProcedure:
    """Walk a public ladder down from 1, and test each rung on all reports by betting.

    The certificate is PAC at 1 - alpha with no Delta. With `largest_set`, larger sets count as that
    many best labels of theirs. `shown` is what reports come with in clear, probabilities unless it
    is given. With `levels`, pairs of alpha and delta, the same reports walk down once for each.
    """
    check_promise(alpha, delta if delta or not levels else levels[0][1], max_corrupt)
    ladder = public_ladder() if ladder is None else check_ladder(ladder)
    tally = yield LabelQuery(channel, shown=shown)
    n = len(tally.reports)
    thresholds, payoffs = coverage_payoffs(
        tally, channel, ladder=ladder, alpha=alpha, largest=largest_set
    )
    found: list[Level] = []
    rungs: tuple[LabelRung, ...] = ()
    if levels:
        for at, by in levels:
            own = at_level(payoffs, channel, alpha=alpha, level=at, largest=largest_set)
            evidence = betting_evidence(own, delta=by, max_corrupt=max_corrupt)
            q, walked = walk_down(thresholds, *evidence)
            found.append(Level(alpha=at, delta=by, threshold=q, rungs=walked[-2:]))
        threshold = threshold_of(found, alpha=alpha, delta=delta)
    else:
        evidence = betting_evidence(payoffs, delta=delta, max_corrupt=max_corrupt)
        threshold, rungs = walk_down(thresholds, *evidence)
    reason = None
    if threshold >= 1:
        reason = (
            nothing_passed(found, alpha=alpha, delta=delta, n=n) if found else _too_few(n, rungs)
        )
    return LocalCertificate(
        method="labels",
        variant="certified",
        kind=promise_of(found, delta),
        threshold=threshold,
        level=1 - alpha,
        levels=tuple(found),
        alpha=alpha,
        delta=delta,
        n=n,
        channel=channel.name,
        epsilon=channel.epsilon,
        max_corrupt=max_corrupt,
        rungs=rungs,
        reason=reason,
        assumptions=(IID, MIXTURE, DROPOUTS, *((LIARS_IN_ORDER,) if max_corrupt else ())),
    )


def _too_few(n: int, rungs: tuple[LabelRung, ...]) -> str:
    if not rungs:
        return "no rung below 1"
    last = rungs[-1]
    return (
        f"too few reports: {n} give log-capital {last.log_capital:.2f}, {last.needed:.2f} is needed"
    )


def of_plan(plan: Plan) -> LabelProcedure:
    """Make the procedure of a plan of this method."""
    terms = LabelTerms.of(plan.terms)
    own: dict[str, Any] = {"ladder": np.array(terms.ladder)} if terms.ladder else {}
    if terms.largest_set:
        own["largest_set"] = terms.largest_set
    if terms.levels:
        own["levels"] = terms.levels
    if terms.variant == CLASS_CONDITIONAL:
        own |= {"joint": terms.joint, "class_floor": terms.class_floor}
    if terms.variant in PART_VARIANTS:
        own |= {"joint": terms.joint, "part_floor": terms.part_floor, "division": terms.division}
    return procedure(
        variant=terms.variant,
        channel=terms.make_channel(labels=plan.labels),
        alpha=plan.alpha,
        delta=terms.delta,
        max_corrupt=terms.max_corrupt,
        shown=terms.clear(labels=plan.labels),
        **own,
    )


MAKERS: dict[str, Callable[..., LabelProcedure]] = {
    "certified": certified,
    CLASS_CONDITIONAL: class_conditional,
    **{variant: partial(by_parts, variant=variant) for variant in PART_VARIANTS},
    "published": partial(published, star=False),
    "published-star": partial(published, star=True),
}


def procedure(*, variant: str, **asked: Any) -> LabelProcedure:
    """Make the procedure of a variant."""
    return MAKERS[variant](**asked)
