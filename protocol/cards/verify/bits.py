"""Decide a bits certificate again: its slack, or the thresholds that its tallies certify."""

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import bdtrc, gammaln

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify import recompute
from confide.protocol.cards.verify.findings import CLOSE, Finding, same
from confide.protocol.cards.verify.local import LocalRules, published_level, register
from confide.protocol.certificate import PLANNED_MIXTURE

ROUNDS = 10
# The share of delta that a certified campaign keeps for a second search.
RESERVE = 0.05
# Shares of an owner's answers in the stages of for-every-owner.
OWNER_SHARES = (0.15, 0.3, 0.4)
# Tails of at most this lie beyond the mean + 1, where a sum of unequal bits is bounded.
MOST_UNEQUAL = 0.25


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
    shares = OWNER_SHARES if found["variant"] == "for-every-owner" else recompute.STAGE_SHARES
    planned = [int(found["planned"] * share) for share in shares]
    whole = found["variant"] in ("certified", "for-every-owner")
    reserve = RESERVE * found["delta"] if whole else 0.0
    start = level = found["delta"] - reserve
    unequal = PLANNED_MIXTURE in found["assumptions"]
    certified, failed, risen, stage = 1.0, None, False, -1
    for i, rung in enumerate(found["rungs"]):
        name = f"certificate/rungs/{i}"
        allowed = (0.0 if failed is None else failed) <= rung["threshold"] < certified
        yield Finding(
            f"{name}/threshold",
            allowed and level > 0,
            f"below {certified}, from {failed or 0.0}, at level {level}",
        )
        rest, stage = _rest(found, planned, (rung["rest"], stage))
        yield same(f"{name}/rest", rung["rest"], rest)
        # Answers of a planned mixture are unequal, and not tested above this level.
        level = min(level, MOST_UNEQUAL) if unequal else level
        yield same(f"{name}/level", rung["level"], level)
        yield Finding(f"{name}/ones", 0 <= rung["ones"] <= rung["n"], "ones among the answers")
        risen = risen or (failed is not None and rung["threshold"] > failed)
        share = 0.0 if risen else 0.5 if certified == 1 else 0.25
        ones = max(0, rung["ones"] - max_corrupt)
        numbers = {"rest": rest, "level": level, "rate": rate, "share": share}
        after = (_unequal_after if unequal else _level_after)(ones, rung["n"], **numbers)
        yield Finding(
            f"{name}/level_after",
            rung["level_after"] <= after * (1 + CLOSE),
            f"the card says {rung['level_after']}, recomputed {after}",
        )
        if rung["level_after"] == 1.0:
            certified, level, failed = rung["threshold"], 0.0 if risen else start, None
        else:
            level, failed = rung["level_after"], rung["threshold"]
        if level < reserve:
            # The second search: its own level, anywhere below what is certified.
            start = level = reserve
            reserve, failed, risen = 0.0, None, False
    yield same("certificate/threshold", found["threshold"], certified)


def _rest(found: Layer, planned: list[int], last: tuple[int, int]) -> tuple[int, int]:
    """The answers planned after a stage, and its number, which is above that of the stage before.

    `last` are the answers that the card states, and the number of the stage before.
    An owner may skip stages of for-every-owner, so the stage is the first whose rest is as stated.
    """
    stated, before = last
    if found["variant"] == "certified":
        return sum(planned[before + 2 :]), before + 1
    if found["variant"] != "for-every-owner":
        return 0, before + 1
    later = [sum(planned[i + 1 :]) for i in range(len(planned))]
    fits = [i for i in range(before + 1, len(planned)) if later[i] == stated]
    stage = fits[0] if fits else before + 1
    return (later[stage] if stage < len(planned) else -1), stage


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
        return tail(stop, n) + float(masses @ later)

    pooled = recompute.first(lambda count: spent(count) <= level, n + rest + 1)
    return tail(pooled - ones, rest)


def _unequal_after(
    ones: int, n: int, *, rest: int, level: float, rate: float, share: float
) -> float:
    """Return the conditional level after a stage of bits whose rates differ: two tails, added."""

    def tail(count: int, size: int) -> float:
        return 1.0 if count <= 0 else 0.0 if count > size else float(bdtrc(count - 1, size, rate))

    stop = recompute.first(lambda count: tail(count, n) <= level * (share if rest else 1.0), n + 1)
    if ones >= stop:
        return 1.0
    left, both = level - tail(stop, n), n + rest
    pooled = recompute.first(lambda count: tail(count, both) <= left, both + 1)
    return tail(pooled - ones, rest) if rest else 0.0


register(
    "bits",
    LocalRules(
        variants=(
            "certified",
            "for-every-owner",
            "per-owner",
            "published",
            "published-star",
            "one-shot",
        ),
        channels=lambda _: ("bit",),
        evidence=evidence,
        planned=True,
        shuffled=True,
        strata={"for-every-owner": "owner", "per-owner": "owner"},
        together=("for-every-owner",),
        adaptive=True,
    ),
)
