"""Verify a pairs certificate: the stages of every label, and the levels they had."""

import math
from collections.abc import Iterator

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import CLOSE, Finding, same
from confide.protocol.cards.verify.local.labels import first_bet
from confide.protocol.cards.verify.local.rules import LocalRules, register
from confide.protocol.channels.registry import label_channels

MOST_STAGES = 5
# A label certified so low is not asked on: nothing that matters is below.
NOTHING_LOWER = 1e-7


def evidence(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Check a label: each stage needed what its level was short of 1, and more for every lie.

    A stage moves the level of its threshold and of all above by what it earned. Thresholds are
    certified whose level, with that of all above them, has reached 1 and what lies may have earned.
    """
    yield same("certificate/planned", found["planned"], None)
    yield same("certificate/slack", found["slack"], None)
    yield same("certificate/level", found["level"], 1 - found["alpha"])
    n, rungs = found["n"], found["rungs"]
    yield Finding("certificate/rungs", len(rungs) <= MOST_STAGES, f"at most {MOST_STAGES} stages")
    yield _stages(found)
    certified, full, lies = 1.0, math.log(found["delta"]), 0.0
    # Logarithms of the levels of the thresholds asked. Each is also that of all thresholds up to
    # the next one asked; delta is that of the thresholds below.
    levels: dict[float, float] = {}
    for i, rung in enumerate(rungs):
        name, q = f"certificate/rungs/{i}", rung["threshold"]
        yield Finding(f"{name}/threshold", 0 <= q < certified, f"below {certified}")
        below = [at for at in levels if at <= q]
        levels.setdefault(q, levels[max(below)] if below else full)
        concerned = [at for at in levels if at >= q]
        goal = -min(levels[at] for at in concerned)
        lies = max(lies, min(max_corrupt, n) * math.log1p(_least_bet(n, goal)))
        least = goal + lies
        enough = rung["needed"] >= least * (1 - CLOSE) and (
            max_corrupt > 0 or rung["needed"] <= least * (1 + CLOSE)
        )
        yield Finding(f"{name}/needed", enough, f"{least:.6g} by its level and {max_corrupt} lies")
        if found["alpha"] <= 0.5:
            earned = n * math.log(1.5)
            holds = rung["log_capital"] <= earned
            yield Finding(f"{name}/log_capital", holds, f"{n} reports earn at most {earned:.6g}")
        if max_corrupt:
            lies = max(lies, rung["needed"] - goal)
        levels |= {at: levels[at] + rung["log_capital"] for at in concerned}
        reached = {at for at in levels if all(levels[up] >= lies for up in levels if up >= at)}
        if rung["log_capital"] >= rung["needed"]:
            reached.add(q)
        certified = min(certified, *reached, 1.0)
        levels = {at: level for at, level in levels.items() if at < certified}
    yield same("certificate/threshold", found["threshold"], certified)


def _stages(found: Layer) -> Finding:
    """Check that a label is tested in every stage, and not in those alone that it passed.

    Rare labels are tested in none, and one that has certified the lowest threshold in no more.
    """
    stages = max(len(part["rungs"]) for part in found["strata"]["parts"])
    count = len(found["rungs"])
    held = count in (0, stages) or found["threshold"] < NOTHING_LOWER
    return Finding("certificate/stages", held, f"{count} of the {stages} stages of other labels")


def _least_bet(n: int, goal: float) -> float:
    """The least that the first bet on n reports can be, by the capital needed."""
    return first_bet(n, min(max(math.exp(min(-goal, 0.0)), 1e-300), 1 - 1e-12))


register(
    "pairs",
    LocalRules(
        variants=("class-conditional",),
        channels=lambda _: label_channels(),
        evidence=evidence,
        strata={"class-conditional": "class"},
        adaptive=True,
        search_rounds=2,
    ),
)
