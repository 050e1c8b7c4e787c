"""LDP-CP-S: features and labels are private; each record sends one randomised bit 1{S <= q}.

Penso et al. 2025, Algorithm 3, and beyond. Each procedure is a generator that yields queries, is
sent tallies and returns a certificate. `n` is the number of records expected, which is used to plan
only; certificates depend on the answers that arrived.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from confide.aggregator.procedures.bit_search import Ahead, Answers, aim_for, narrow, place
from confide.aggregator.procedures.certify import Search, null_rate, tail
from confide.aggregator.procedures.ladder import LOGIT_REACH, Ladder, check_ladder, public_ladder
from confide.protocol.certificate import (
    DROPOUTS,
    IID,
    LIARS,
    MIXTURE,
    PAC,
    BitRung,
    LocalCertificate,
)
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import BadInput, check_probability
from confide.protocol.methods.bits import BitProcedure, BitQuery, BitTally, BitTerms
from confide.protocol.plan import Plan

Floats = NDArray[np.float64]

# Shares of the records: two search rounds of twelve thresholds, then six certification stages, the
# first ones small: they only make sure that something is certified.
SEARCH_SHARES = (0.05, 0.1)
STAGE_SHARES = (0.08, 0.09, 0.18, 0.14, 0.19, 0.17)
SEARCH_THRESHOLDS = 12
PUBLISHED_ROUNDS = 10
ONE_SHOT_RUNGS = 200


def published_delta(*, channel: Bit, n: int, rounds: int, delta: float) -> float:
    """Delta_S = (e^eps + 1)/(e^eps - 1) sqrt(log(2T/delta) / (2n')), n' = n/T answers a round."""
    return float(1 / (channel.hit - channel.spill)) * math.sqrt(
        math.log(2 * rounds / delta) / (2 * (n / rounds))
    )


def published(
    *, channel: Bit, alpha: float, delta: float, n: int, star: bool = False, max_corrupt: int = 0
) -> BitProcedure:
    """Binary search over disjoint groups: LDP-CP-S, or S* with `star`.

    The level is 1 - alpha - Delta, or 1 - alpha with `star`. Corrected: the mean is over the
    round's own answers, the bit is 1{S <= q}, and a search that ends without a hit returns the
    upper end of its bracket. Delta is taken from the smallest round that arrived.
    """
    variant, rounds = "published-star" if star else "published", PUBLISHED_ROUNDS
    asked = _Asked(
        variant=variant, channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt
    )
    scale = float(1 / (channel.hit - channel.spill))
    low, high, arrived, smallest = 0.0, 1.0, 0, n // rounds
    slack = (
        published_delta(channel=channel, n=n, rounds=rounds, delta=delta) if smallest else math.inf
    )
    for j in range(rounds if smallest else 0):
        q = (low + high) / 2
        tally = yield BitQuery(channel, j / rounds, (j + 1) / rounds, (q,))
        answers, ones = tally.answers[0], tally.ones[0]
        arrived += answers
        if answers == 0:
            low = q
            continue
        smallest = min(smallest, answers)
        slack = (
            published_delta(channel=channel, n=smallest * rounds, rounds=rounds, delta=delta)
            + scale * max_corrupt / smallest
        )
        z = scale * (ones / answers - float(channel.spill))
        floor = 1 - alpha + (slack if star else 0.0)
        if z < floor:
            low = q
            continue
        high = q
        if z <= floor + slack:
            break
    level = 1 - alpha if star else max(0.0, 1 - alpha - slack)
    reason = None
    if high >= 1.0:
        reason = f"no round saw enough ones: Delta is {slack:.3f} with {smallest} answers a round"
    made = asked.finish(arrived=arrived, rungs=(), threshold=high, reason=reason)
    return replace(made, level=level, slack=slack if smallest else None)


def certified(
    *, channel: Bit, alpha: float, delta: float, n: int, max_corrupt: int = 0
) -> BitProcedure:
    """Search with 15 % of the records, certify with the rest; PAC at 1 - alpha with no Delta.

    The search narrows a window around the threshold whose certification is likely. Each stage then
    asks one threshold that `Search` allows, placed by the curve so far. There are eight rounds.
    """
    asked = _Asked(
        variant="certified", channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt
    )
    sizes = [int(n * share) for share in STAGE_SHARES]
    if asked.hopeless(sum(sizes)):
        return asked.too_few()
    answers = Answers(channel, aim_for(asked.m0, channel, alpha=alpha, answers=sum(sizes)))
    arrived, start = yield from _narrowed(channel, answers)
    search, rungs = asked.search(), []
    unit = math.sqrt(asked.m0 * (1 - asked.m0) / n) / float(channel.hit - channel.spill)
    for i, share in enumerate(STAGE_SHARES):
        rest = sum(sizes[i + 1 :])
        stage = Ahead(sizes[i], rest, unit)
        q = place(answers, search, stage, channel=channel, alpha=alpha)
        if q is None:
            break
        stop = start + share if rest else 1.0
        tally = yield BitQuery(channel, start, stop, (q,))
        answers.add((q,), tally)
        arrived += tally.answers[0]
        start = stop
        rungs.append(search.test(q, n=tally.answers[0], ones=tally.ones[0], rest=rest))
        if search.finished:
            break
    reason = None
    if search.certified >= 1:
        reason = (
            f"no threshold passed: {len(rungs)} stages on {arrived} answers did not reach 1 - alpha"
        )
    return asked.finish(arrived=arrived, rungs=rungs, threshold=search.certified, reason=reason)


def _narrowed(channel: Bit, answers: Answers) -> Generator[BitQuery, BitTally, tuple[int, float]]:
    """Run the search rounds: each asks twelve thresholds across a window that the answers narrow.

    Returns how many answers arrived, and the position where the records not yet asked begin.
    """
    arrived, start = 0, 0.0
    window = (-LOGIT_REACH, LOGIT_REACH)
    for share in SEARCH_SHARES:
        thresholds = tuple(expit(np.linspace(*window, SEARCH_THRESHOLDS)).tolist())
        tally = yield BitQuery(channel, start, start + share, thresholds)
        answers.add(thresholds, tally)
        arrived += sum(tally.answers)
        start += share
        window = narrow(answers.curve(), answers.aim, window)
    return arrived, start


def one_shot(
    *,
    channel: Bit,
    alpha: float,
    delta: float,
    n: int,
    max_corrupt: int = 0,
    ladder: Ladder | None = None,
) -> BitProcedure:
    """One round for clients seen once: answers are spread over a public ladder of thresholds.

    A third of the answers plan and two thirds test. The hypothesis at a rung also bounds every
    lower rung, so a rung is tested on the pooled answers of a run of rungs that ends at it. The
    planning third chooses the run for which the test promises most power; then the rungs are tested
    from 1 downwards, at level delta each, until one fails.
    """
    asked = _Asked(
        variant="one-shot", channel=channel, alpha=alpha, delta=delta, n=n, max_corrupt=max_corrupt
    )
    rungs_at = public_ladder(ONE_SHOT_RUNGS) if ladder is None else check_ladder(ladder)
    rungs_at = rungs_at[rungs_at < 1]
    count = len(rungs_at)
    if asked.hopeless(2 * n // 3):
        return asked.too_few()
    tally = yield BitQuery(channel, 0.0, 1.0, tuple(rungs_at.tolist()) * 3)
    answered, ones = (np.array(column).reshape(3, count) for column in (tally.answers, tally.ones))
    arrived = int(answered.sum())
    plan = Answers(channel, aim_for(asked.m0, channel, alpha=alpha, answers=arrived // 8))
    planning = BitTally(tuple(answered[0].tolist()), tuple(ones[0].tolist()))
    plan.add(tuple(rungs_at.tolist()), planning)
    expected, _ = plan.curve().predict(logit(rungs_at))
    tested, hits = answered[1:].sum(axis=0), ones[1:].sum(axis=0)
    search, rungs = asked.search(), []
    for j in range(count - 1, -1, -1):
        back = np.cumsum(tested[j::-1])
        promise = np.cumsum((tested * (expected - (1 - alpha)))[j::-1]) / np.sqrt(
            np.maximum(back, 1)
        )
        run = slice(j - int(promise.argmax()), j + 1)
        tried, passed = int(tested[run].sum()), int(hits[run].sum())
        rungs.append(search.test(float(rungs_at[j]), n=tried, ones=passed, rest=0))
        if search.finished:
            break
    reason = None
    if search.certified >= 1:
        reason = f"the highest rung below 1 did not pass on {rungs[0].n} answers"
    return asked.finish(arrived=arrived, rungs=rungs, threshold=search.certified, reason=reason)


def of_plan(plan: Plan) -> BitProcedure:
    """Make the procedure of a plan of this method."""
    terms = BitTerms.of(plan.terms)
    return procedure(
        variant=terms.variant,
        channel=terms.make_channel(labels=plan.labels),
        alpha=plan.alpha,
        delta=terms.delta,
        n=plan.expected_records,
        max_corrupt=terms.max_corrupt,
    )


def procedure(*, variant: str, n: int, **asked: Any) -> BitProcedure:
    """Make the procedure of a variant; `n` is the number of records expected."""
    if variant == "certified":
        return certified(n=n, **asked)
    if variant == "one-shot":
        return one_shot(n=n, **asked)
    return published(n=n, star=variant == "published-star", **asked)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The promise and expectations of a campaign; `finish` puts them on a certificate."""

    variant: str
    channel: Bit
    alpha: float
    delta: float
    n: int
    max_corrupt: int

    def __post_init__(self) -> None:
        check_probability("alpha", self.alpha)
        check_probability("delta", self.delta)
        if self.n < 1:
            raise BadInput(f"n is {self.n}; at least 1 record must be expected")
        if self.max_corrupt < 0:
            raise BadInput(f"max_corrupt is {self.max_corrupt}; it must be 0 or more")

    @property
    def m0(self) -> float:
        """The rate of ones at coverage 1 - alpha."""
        return null_rate(self.channel, self.alpha)

    def hopeless(self, answers: int) -> bool:
        """Whether this many answers would certify nothing even if all of them were ones."""
        honest = max(0, answers - self.max_corrupt)
        return tail(honest, answers, self.m0) > self.delta

    def search(self) -> Search:
        return Search(delta=self.delta, m0=self.m0, max_corrupt=self.max_corrupt)

    def finish(
        self, *, arrived: int, rungs: Sequence[BitRung], threshold: float, reason: str | None
    ) -> LocalCertificate:
        return LocalCertificate(
            method="bits",
            variant=self.variant,
            kind=PAC,
            threshold=threshold,
            level=1 - self.alpha,
            alpha=self.alpha,
            delta=self.delta,
            n=arrived,
            channel=self.channel.name,
            epsilon=self.channel.epsilon,
            max_corrupt=self.max_corrupt,
            planned=self.n,
            rungs=tuple(rungs),
            reason=reason,
            assumptions=(IID, MIXTURE, DROPOUTS, *((LIARS,) if self.max_corrupt else ())),
        )

    def too_few(self) -> LocalCertificate:
        needed = math.ceil(math.log(self.delta) / math.log(self.m0))
        reason = (
            f"too few reports: {self.n} records, of which {self.max_corrupt} may be corrupt; the "
            f"test alone takes at least {needed} honest answers to certify anything"
        )
        return self.finish(arrived=0, rungs=(), threshold=1.0, reason=reason)
