"""LDP-CP-S: features and labels are private; each record sends one randomised bit 1{S <= q}.

Penso et al. 2025, Algorithm 3, and beyond. Each procedure is a generator that yields queries, is
sent tallies and returns a certificate. `n` is the number of records expected, which is used to plan
only; certificates depend on the answers that arrived.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit

from confide.aggregator.procedures.bits.asked import Asked
from confide.aggregator.procedures.bits.one_shot import one_shot
from confide.aggregator.procedures.bits.search import (
    Ahead,
    Answers,
    Searching,
    aim_for,
    narrow,
    place,
)
from confide.aggregator.procedures.ladder import LOGIT_REACH
from confide.aggregator.procedures.levels import LevelSearch
from confide.aggregator.procedures.owners.every_owner_bits import for_every_part
from confide.aggregator.procedures.owners.group_bits import per_group
from confide.aggregator.procedures.owners.owner_bits import per_owner
from confide.aggregator.procedures.owners.planned_mixture import PlannedMixture, left_reason
from confide.protocol.certificate import EQUAL_OWNERS, IID, IID_OWNERS, PLANNED_MIXTURE
from confide.protocol.channels.bit import Bit
from confide.protocol.levels import Levels
from confide.protocol.methods.bit_rounds import PUBLISHED_ROUNDS, Rounds, rounds_for
from confide.protocol.methods.bits import BitProcedure, BitQuery, BitTerms
from confide.protocol.methods.owner_terms import EACH, PART_VARIANTS, PER_GROUP, PER_OWNER, TOGETHER
from confide.protocol.methods.parts import BitTally
from confide.protocol.plan import Plan, digest

# The thresholds of a round that searches.
SEARCH_THRESHOLDS = 12


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
    asked = Asked(
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
    *,
    channel: Bit,
    alpha: float,
    delta: float,
    n: int,
    max_corrupt: int = 0,
    mixture: bytes | None = None,
    equal_owners: bool = False,
    smallest_owner: int = 0,
    levels: Levels = (),
) -> BitProcedure:
    """Search with 15 % of the records, certify with the rest; PAC at 1 - alpha with no Delta.

    The search narrows a window around the threshold whose certification is likely. Each stage then
    asks one threshold that `Search` allows, placed by the curve so far. There are eight rounds, or
    fewer where a small owner shall answer each.

    With `mixture`, a public seed, what is certified is for owners in the shares of the first round,
    or for these in equal shares with `equal_owners`.
    With `levels`, pairs of alpha and delta, every stage tests all of them.
    """
    promise: dict[str, Any] = {"alpha": alpha, "delta": delta, "levels": levels}
    if mixture is not None:
        equal = (IID_OWNERS, EQUAL_OWNERS)
        promise["drawn"] = equal if equal_owners else (IID, PLANNED_MIXTURE)
    asked = Asked(variant="certified", channel=channel, n=n, max_corrupt=max_corrupt, **promise)
    rounds = rounds_for(smallest_owner)
    sizes = [int(n * share) for share in rounds.stages]
    if asked.hopeless(sum(sizes)):
        return asked.too_few()
    answers = Answers(channel, aim_for(asked.m0, channel, alpha=alpha, answers=sum(sizes)))
    first, arrived, start = yield from _narrowed(channel, answers, rounds)
    planned = None if mixture is None else PlannedMixture.of(first, mixture, equal=equal_owners)
    search: Searching = (
        asked.level_search() if levels else asked.search(unequal=planned is not None)
    )
    rungs: list[Any] = []
    unit = math.sqrt(asked.m0 * (1 - asked.m0) / n) / float(channel.hit - channel.spill)
    reason = planned.too_few(asked, rounds) if planned else None
    for i, share in enumerate(() if reason else rounds.stages):
        rest = sum(sizes[i + 1 :])
        stage = Ahead(sizes[i], rest, unit)
        q = place(answers, search, stage, channel=channel, alpha=alpha)
        if q is None:
            break
        stop = start + share if rest else 1.0
        tally = yield BitQuery(channel, start, stop, (q,))
        arrived += tally.answers[0]
        start = stop
        if planned is not None:
            trials = planned.trials(tally, channel=channel, alpha=alpha, m0=asked.m0)
            if not trials:
                reason = left_reason(*planned.missing(tally))
                break
            tally = planned.drawn(tally, trials, i)
        answers.add((q,), tally)
        rungs.append(search.test(q, n=tally.answers[0], ones=tally.ones[0], rest=rest))
        if search.finished:
            break
    drawn = f" of {sum(rung.n for rung in rungs)} trials" if planned else ""
    failed = (
        f"no threshold passed: {len(rungs)} stages{drawn} on {arrived} answers did not reach "
        "1 - alpha"
    )
    reason = (reason or failed) if search.certified >= 1 else None
    if isinstance(search, LevelSearch):
        return asked.finish_levels(arrived=arrived, levels=search.levels)
    return asked.finish(arrived=arrived, rungs=rungs, threshold=search.certified, reason=reason)


def _narrowed(
    channel: Bit, answers: Answers, rounds: Rounds
) -> Generator[BitQuery, BitTally, tuple[BitTally, int, float]]:
    """Run the search rounds: each asks twelve thresholds across a window that the answers narrow.

    Returns the first tally, how many answers arrived, and the position where the records not yet
    asked begin.
    """
    first, arrived, start = BitTally((), ()), 0, 0.0
    window = (-LOGIT_REACH, LOGIT_REACH)
    for share in rounds.search:
        thresholds = tuple(expit(np.linspace(*window, SEARCH_THRESHOLDS)).tolist())
        tally = yield BitQuery(channel, start, start + share, thresholds)
        first = first if arrived else tally
        answers.add(thresholds, tally)
        arrived += sum(tally.answers)
        start += share
        window = narrow(answers.curve(), answers.aim, window)
    return first, arrived, start


def of_plan(plan: Plan) -> BitProcedure:
    """Make the procedure of a plan of this method."""
    terms = BitTerms.of(plan.terms)
    own: dict[str, Any] = {}
    if terms.planned_mixture:
        own |= {"mixture": digest(plan.to_bytes()), "equal_owners": terms.equal_owners}
    if terms.smallest_owner:
        own["smallest_owner"] = terms.smallest_owner
    if terms.levels:
        own["levels"] = terms.levels
    if terms.variant in PART_VARIANTS:
        own |= {"part_floor": terms.part_floor, "division": terms.division}
    if terms.variant in EACH:
        own["joint"] = terms.joint
    return procedure(
        variant=terms.variant,
        channel=terms.make_channel(labels=plan.labels),
        alpha=plan.alpha,
        delta=terms.delta,
        n=plan.expected_records,
        max_corrupt=terms.max_corrupt,
        **own,
    )


MAKERS: dict[str, Callable[..., BitProcedure]] = {
    "certified": certified,
    **{variant: partial(for_every_part, variant=variant) for variant in TOGETHER},
    PER_OWNER: per_owner,
    PER_GROUP: per_group,
    "published": partial(published, star=False),
    "published-star": partial(published, star=True),
    "one-shot": one_shot,
}


def procedure(*, variant: str, n: int, **asked: Any) -> BitProcedure:
    """Make the procedure of a variant; `n` is the number of records expected."""
    return MAKERS[variant](n=n, **asked)
