"""Decide a bits certificate again: its slack, or the thresholds that its tallies certify."""

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import bdtrc, gammaln

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify import recompute
from confide.protocol.cards.verify.findings import CLOSE, Finding, same
from confide.protocol.cards.verify.local import LocalRules, published_level, register

ROUNDS = 10
# The share of its level that a threshold keeps after a stage that others follow.
KEPT = 0.06


def evidence(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Check certified variants by their rungs, and published ones by their slack."""
    if found["variant"].startswith("published"):
        # The card has only the answers of all rounds, which bound the smallest round from above.
        yield from published_level(found, least=_least_slack(found, max_corrupt), most=math.inf)
        return
    yield same("certificate/slack", found["slack"], None)
    yield same("certificate/level", found["level"], 1 - found["alpha"])
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


def _rungs(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Recompute which thresholds the tallies certify, and at which levels."""
    keep = 1 / (1 + math.exp(-found["epsilon"]))
    rate = (1 - found["alpha"]) * (2 * keep - 1) + 1 - keep
    planned = [int(found["planned"] * share) for share in recompute.STAGE_SHARES]
    whole = found["variant"] == "certified"
    certified = 1.0
    # Levels of the thresholds asked and not certified. Each is also that of all thresholds up to
    # the next one asked; delta is that of the thresholds below.
    levels: dict[float, float] = {}
    for i, rung in enumerate(found["rungs"]):
        name, q = f"certificate/rungs/{i}", rung["threshold"]
        below = [at for at in levels if at <= q]
        levels.setdefault(q, levels[max(below)] if below else found["delta"])
        concerned = [at for at in levels if at >= q]
        level = min(levels[at] for at in concerned)
        yield Finding(
            f"{name}/threshold",
            0 <= q < certified and level > 0,
            f"below {certified}, at level {level}",
        )
        rest = sum(planned[i + 1 :]) if whole else 0
        yield same(f"{name}/rest", rung["rest"], rest)
        yield Finding(
            f"{name}/level",
            abs(rung["level"] - level) <= CLOSE * level,
            f"the card says {rung['level']}, recomputed {level}",
        )
        yield Finding(f"{name}/ones", 0 <= rung["ones"] <= rung["n"], "ones among the answers")
        share = 0.4 if certified == 1 else 0.25
        ones = max(0, rung["ones"] - max_corrupt)
        for at in concerned:
            levels[at] = _level_after(
                ones, rung["n"], rest=rest, level=levels[at], rate=rate, share=share
            )
        after = min(levels[at] for at in concerned)
        yield Finding(
            f"{name}/level_after",
            abs(rung["level_after"] - after) <= after * CLOSE,
            f"the card says {rung['level_after']}, recomputed {after}",
        )
        if rung["level_after"] == 1.0:
            certified = q
            levels = {at: left for at, left in levels.items() if at < q}
    yield same("certificate/threshold", found["threshold"], certified)


def _level_after(ones: int, n: int, *, rest: int, level: float, rate: float, share: float) -> float:
    """Return the conditional level after a stage.

    It is computed from tails of the regularised incomplete beta function.
    """

    def tail(count: int, size: int) -> float:
        return 1.0 if count <= 0 else 0.0 if count > size else float(bdtrc(count - 1, size, rate))

    stop = recompute.first(lambda count: tail(count, n) <= level * (share if rest else 1.0), n + 1)
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
        return tail(stop, n) + float(masses @ np.maximum(later, KEPT * level))

    pooled = recompute.first(lambda count: spent(count) <= level, n + rest + 1)
    return max(KEPT * level, tail(pooled - ones, rest))


register(
    "bits",
    LocalRules(
        variants=("certified", "published", "published-star", "one-shot"),
        channels=lambda _: ("bit",),
        evidence=evidence,
        planned=True,
        shuffled=True,
        adaptive=True,
    ),
)
