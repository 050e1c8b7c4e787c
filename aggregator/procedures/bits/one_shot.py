"""Bits in one round: answers are spread over a public ladder, whose rungs are then tested."""

from typing import Any

import numpy as np
from scipy.special import logit

from confide.aggregator.procedures.bits.asked import Asked
from confide.aggregator.procedures.bits.search import Answers, aim_for
from confide.aggregator.procedures.ladder import Ladder, check_ladder, public_ladder
from confide.protocol.certificate import BitRung, Level
from confide.protocol.channels.bit import Bit
from confide.protocol.levels import Levels
from confide.protocol.methods.bits import BitProcedure, BitQuery
from confide.protocol.methods.parts import BitTally

ONE_SHOT_RUNGS = 200
# Every rung is asked in so many slices: the answers of the first plan, those of the others test.
REPEATS = 3


def ladder_below_1(ladder: Ladder | None) -> Ladder:
    """The rungs that are asked about: those of a ladder, or of the public one, below 1."""
    rungs = public_ladder(ONE_SHOT_RUNGS) if ladder is None else check_ladder(ladder)
    return rungs[rungs < 1]


def one_shot(
    *,
    channel: Bit,
    alpha: float,
    delta: float,
    n: int,
    max_corrupt: int = 0,
    ladder: Ladder | None = None,
    levels: Levels = (),
) -> BitProcedure:
    """One round for clients seen once: answers are spread over a public ladder of thresholds.

    A third of the answers plan and two thirds test. The hypothesis at a rung also bounds every
    lower rung, so a rung is tested on the pooled answers of a run of rungs that ends at it. The
    planning third chooses the run for which the test promises most power; then the rungs are tested
    from 1 downwards, at level delta each, until one fails.

    With `levels`, pairs of alpha and delta, the same answers walk down once for each.
    """
    promise: dict[str, Any] = {"alpha": alpha, "delta": delta, "levels": levels}
    asked = Asked(variant="one-shot", channel=channel, n=n, max_corrupt=max_corrupt, **promise)
    rungs_at = ladder_below_1(ladder)
    if asked.hopeless(2 * n // 3):
        return asked.too_few()
    tally = yield BitQuery(channel, 0.0, 1.0, tuple(rungs_at.tolist()) * REPEATS)
    arrived = sum(tally.answers)
    if levels:
        found = [_at_level(one, tally, rungs_at) for one in asked.each]
        return asked.finish_levels(arrived=arrived, levels=found)
    rungs = walk(asked, tally, rungs_at)
    threshold = _lowest(rungs)
    reason = None
    if threshold >= 1:
        reason = f"the highest rung below 1 did not pass on {rungs[0].n} answers"
    return asked.finish(arrived=arrived, rungs=rungs, threshold=threshold, reason=reason)


def _at_level(asked: Asked, tally: BitTally, rungs_at: Ladder) -> Level:
    """What a level certifies, with the last rung that passed and the one that did not."""
    rungs = walk(asked, tally, rungs_at)
    return Level(
        alpha=asked.alpha, delta=asked.delta, threshold=_lowest(rungs), rungs=tuple(rungs[-2:])
    )


def _lowest(rungs: list[BitRung]) -> float:
    return min([1.0, *(rung.threshold for rung in rungs if rung.passed)])


def walk(asked: Asked, tally: BitTally, rungs_at: Ladder) -> list[BitRung]:
    """Plan with the first third of the answers, and test rungs on the others until one fails."""
    channel, alpha, count = asked.channel, asked.alpha, len(rungs_at)
    answered, ones = (
        np.array(column).reshape(REPEATS, count) for column in (tally.answers, tally.ones)
    )
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
    return rungs
