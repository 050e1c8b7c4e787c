"""Decide a pairs certificate again: the two stages of every label, and the levels they had."""

import math
from collections.abc import Iterator

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import CLOSE, Finding, same
from confide.protocol.cards.verify.local.labels import first_bet
from confide.protocol.cards.verify.local.rules import LocalRules, register
from confide.protocol.channels.registry import label_channels

# The share of delta of a second stage after one that failed; the first has the rest.
RESERVE = 0.1
MOST_RUNGS = 2


def evidence(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Check the stages of a label: thresholds, the capital that each needed, and what passed.

    A label is tested once at level delta by both stages together, or by a first stage at (1 -
    RESERVE) delta. A second one follows below a threshold that passed, at level delta, or after a
    failure, at RESERVE delta.
    """
    yield same("certificate/planned", found["planned"], None)
    yield same("certificate/slack", found["slack"], None)
    yield same("certificate/level", found["level"], 1 - found["alpha"])
    n, delta, rungs = found["n"], found["delta"], found["rungs"]
    yield Finding("certificate/rungs", len(rungs) <= MOST_RUNGS, f"at most {MOST_RUNGS} stages")
    bet = first_bet(n, delta)
    certified, level = 1.0, delta if len(rungs) == 1 else (1 - RESERVE) * delta
    for i, rung in enumerate(rungs):
        name = f"certificate/rungs/{i}"
        yield Finding(f"{name}/threshold", rung["threshold"] < certified, f"below {certified}")
        least = math.log(1 / level) + min(max_corrupt, n) * math.log1p(bet)
        enough = rung["needed"] >= least * (1 - CLOSE)
        yield Finding(f"{name}/needed", enough, f"at least {least:.6g}, by level {level:.6g}")
        if found["alpha"] <= 0.5:
            earned = n * math.log(1.5)
            holds = rung["log_capital"] <= earned
            yield Finding(f"{name}/log_capital", holds, f"{n} reports earn at most {earned:.6g}")
        passed = rung["log_capital"] >= rung["needed"]
        certified = rung["threshold"] if passed else certified
        level = delta if passed else RESERVE * delta
    yield same("certificate/threshold", found["threshold"], certified)


register(
    "pairs",
    LocalRules(
        variants=("class-conditional",),
        channels=lambda _: label_channels(),
        evidence=evidence,
        strata={"class-conditional": "class"},
        adaptive=True,
    ),
)
