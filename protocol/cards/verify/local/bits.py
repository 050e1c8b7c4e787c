"""Verify a bits certificate: its slack, or the thresholds that its tallies certify."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import bdtrc, gammaln

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.counts import recompute
from confide.protocol.cards.verify.findings import CLOSE, Finding, same
from confide.protocol.cards.verify.local.rules import LocalRules, published_level, register
from confide.protocol.cards.verify.local.stages import PARTS, STAGED, TOGETHER, planned_rests
from confide.protocol.certificate import BAND, MARGINAL, mixture_of

ROUNDS = 10
# Tails of at most this lie beyond the mean + 1, where a sum of unequal bits is bounded.
MOST_UNEQUAL = 0.25
# The share of its level that a threshold keeps after a stage that others follow.
KEPT = 0.06
# Variants whose one round walks down a ladder, and the rungs of each of its halves.
WALKED = ("one-shot", "per-owner")
HALF_LADDER = 100


def evidence(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Check certified variants by their rungs, and published ones by their slack."""
    if found["variant"].startswith("published"):
        # The card has only the answers of all rounds, which bound the smallest round from above.
        slack = _least_slack(found, max_corrupt)
        corrected = found["variant"] != "published"
        yield from published_level(found, least=slack, most=math.inf, corrected=corrected)
        return
    yield same("certificate/slack", found["slack"], None)
    yield same("certificate/level", found["level"], 1 - found["alpha"])
    if found["variant"] in WALKED:
        yield _walk(found)
    yield from _rungs(found, max_corrupt)


def _least_slack(found: Layer, max_corrupt: int) -> float:
    """Delta_S of ten rounds of at most planned/10 answers, with the worst corrupt answers."""
    answers = min(found["n"], found["planned"] // ROUNDS)
    if not answers:
        return 0.0
    e = math.exp(found["epsilon"])
    scale = (e + 1) / (e - 1)
    slack = math.sqrt(math.log(2 * ROUNDS / found["delta"]) / (2 * answers))
    return scale * (slack + max_corrupt / answers)


def _walk(found: Layer) -> Finding:
    """Check that one round went down its ladder rung by rung, from the top or, of levels, anywhere.

    Of a level only the rungs that decide it are shown.
    """
    tested, ladder = [rung["threshold"] for rung in found["rungs"]], _ladder()
    near = [i for i, q in enumerate(ladder) if tested and math.isclose(q, tested[0])]
    start = near[0] if near and "levels" in found else 0
    expected = ladder[start : start + len(tested)]
    whole = len(expected) == len(tested)
    held = whole and all(map(math.isclose, tested, expected))
    return Finding("certificate/ladder", held, "every rung of the public ladder until one fails")


def _ladder() -> list[float]:
    """The thresholds below 1 that one round asks: half even in q, half in logit(q)."""
    even = {i / HALF_LADDER for i in range(1, HALF_LADDER)}
    steps = (32 * i / (HALF_LADDER - 1) - 16 for i in range(HALF_LADDER))
    return sorted(even | {1 / (1 + math.exp(-u)) for u in steps}, reverse=True)


def _rungs(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Recompute which thresholds the tallies certify, and at which levels."""
    keep = 1 / (1 + math.exp(-found["epsilon"]))
    rate = (1 - found["alpha"]) * (2 * keep - 1) + 1 - keep
    later = planned_rests(found)
    # Answers of a planned mixture are unequal, and their levels below 1 are at most 1/4.
    unequal = mixture_of(found["assumptions"]) is not None
    delta = min(found["delta"], MOST_UNEQUAL) if unequal else found["delta"]
    certified, stage = 1.0, -1
    # Levels of the thresholds asked and not certified. Each is also that of all thresholds up to
    # the next one asked; delta is that of the thresholds below.
    levels: dict[float, float] = {}
    for i, rung in enumerate(found["rungs"]):
        name, q = f"certificate/rungs/{i}", rung["threshold"]
        below = [at for at in levels if at <= q]
        levels.setdefault(q, levels[max(below)] if below else delta)
        concerned = [at for at in levels if at >= q]
        level = min(levels[at] for at in concerned)
        yield Finding(
            f"{name}/threshold",
            0 <= q < certified and level > 0,
            f"below {certified}, at level {level}",
        )
        rest, stage = _rest(found, later, (rung["rest"], stage))
        yield same(f"{name}/rest", rung["rest"], rest)
        yield Finding(
            f"{name}/level",
            abs(rung["level"] - level) <= CLOSE * level,
            f"the card says {rung['level']}, recomputed {level}",
        )
        yield Finding(f"{name}/ones", 0 <= rung["ones"] <= rung["n"], "ones among the answers")
        share = 0.4 if certified == 1 else 0.25
        ones = max(0, rung["ones"] - max_corrupt)
        numbers = {"rest": rest, "rate": rate, "share": share}
        going = {at: levels[at] for at in concerned}
        moved = _moved(going, rung["level_after"], ones, n=rung["n"], unequal=unequal, **numbers)
        levels |= moved
        after = min(moved.values())
        yield Finding(
            f"{name}/level_after",
            abs(rung["level_after"] - after) <= after * CLOSE,
            f"the card says {rung['level_after']}, recomputed {after}",
        )
        if rung["level_after"] == 1.0:
            certified = q
            levels = {at: left for at, left in levels.items() if at < q}
    yield same("certificate/threshold", found["threshold"], certified)


def _moved(
    levels: dict[float, float], stated: float, ones: int, *, unequal: bool, **numbers: Any
) -> dict[float, float]:
    """The levels after a stage, whose least the card has stated.

    A level may be exactly what some count spends: rounding decides whether that is too much.
    """
    left_by, moved = _unequal_after if unequal else _level_after, levels
    for slack in (1 + CLOSE, 1 - CLOSE):
        moved = {
            at: level if level >= 1 else left_by(ones, level=level, slack=slack, **numbers)
            for at, level in levels.items()
        }
        after = min(moved.values())
        if abs(stated - after) <= after * CLOSE:
            break
    return moved


def _rest(found: Layer, later: list[int], last: tuple[int, int]) -> tuple[int, int]:
    """The answers planned after a stage, and its number, which is above that of the stage before.

    `last` are the answers that the card states, and the number of the stage before.
    A part, or a level, may skip stages of others, so the stage is the first whose rest is as
    stated.
    """
    stated, before = last
    # One of several levels may skip a stage, as a part may.
    skips = found["variant"] in STAGED or "levels" in found
    if found["variant"] == "certified" and not skips:
        return sum(later[before + 1 : before + 2]), before + 1
    if found["variant"] not in (*STAGED, "certified"):
        return 0, before + 1
    fits = [i for i in range(before + 1, len(later)) if later[i] == stated]
    stage = fits[0] if fits else before + 1
    return (later[stage] if stage < len(later) else -1), stage


def _tail(count: int, size: int, rate: float) -> float:
    """The probability that so many of `size` answers, or more, are one."""
    return 1.0 if count <= 0 else 0.0 if count > size else float(bdtrc(count - 1, size, rate))


def _level_after(
    ones: int, *, n: int, rest: int, level: float, rate: float, share: float, slack: float
) -> float:
    """Return the conditional level after a stage.

    It is computed from tails of the regularised incomplete beta function.
    """
    early = slack * level * (share if rest else 1.0)
    stop = recompute.first(lambda count: _tail(count, n, rate) <= early, n + 1)
    if ones >= stop:
        return 1.0
    if rest == 0:
        return 0.0
    counts = np.arange(stop)
    masses = np.exp(
        gammaln(n + 1)
        - gammaln(counts + 1)
        - gammaln(n - counts + 1)
        + counts * math.log(rate)
        + (n - counts) * math.log1p(-rate)
    )

    def spent(pooled: int) -> float:
        needed = pooled - counts
        later = np.where(
            needed <= 0,
            1.0,
            np.where(needed > rest, 0.0, bdtrc(np.clip(needed - 1, 0, rest), rest, rate)),
        )
        return _tail(stop, n, rate) + float(masses @ np.maximum(later, KEPT * level))

    pooled = recompute.first(lambda count: spent(count) <= slack * level, n + rest + 1)
    return max(KEPT * level, _tail(pooled - ones, rest, rate))


def _unequal_after(
    ones: int, *, n: int, rest: int, level: float, rate: float, share: float, slack: float
) -> float:
    """Return the conditional level after a stage of bits whose rates differ.

    The level is the sum of two binomial tails and what is kept.
    """
    early = slack * level * (share if rest else 1.0)
    stop = recompute.first(lambda count: _tail(count, n, rate) <= early, n + 1)
    if ones >= stop:
        return 1.0
    if rest == 0:
        return 0.0
    kept, both = KEPT * level, n + rest
    left = slack * level - kept - _tail(stop, n, rate)
    pooled = recompute.first(lambda count: _tail(count, both, rate) <= left, both + 1)
    return min(max(kept, _tail(pooled - ones, rest, rate)), MOST_UNEQUAL)


register(
    "bits",
    LocalRules(
        variants=(
            "certified",
            *PARTS,
            "published",
            "published-star",
            "one-shot",
        ),
        channels=lambda _: ("bit",),
        evidence=evidence,
        planned=True,
        shuffled=True,
        strata=PARTS,
        together=TOGETHER,
        levels={"certified": (MARGINAL,), "one-shot": (MARGINAL, BAND)},
        adaptive=True,
        by_stage=("certified",),
    ),
)
