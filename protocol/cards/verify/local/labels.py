"""Verify a labels certificate: its slack, or the capital that its rungs needed."""

import math
from collections.abc import Iterator
from statistics import NormalDist

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import CLOSE, Finding, same
from confide.protocol.cards.verify.local.rules import LocalRules, published_level, register
from confide.protocol.cards.verify.local.stages import PARTS, TOGETHER
from confide.protocol.certificate import BAND, MARGINAL
from confide.protocol.channels.registry import label_channels


def evidence(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Check the certified variant by its rungs, and published ones by their slack."""
    yield same("certificate/planned", found["planned"], None)
    if found["variant"].startswith("published"):
        slack = _slack(found, max_corrupt) if found["n"] else 0.0
        corrected = found["variant"] != "published"
        yield from published_level(found, least=slack, most=slack, corrected=corrected)
        return
    yield same("certificate/slack", found["slack"], None)
    yield same("certificate/level", found["level"], 1 - found["alpha"])
    yield from _rungs(found, max_corrupt)


def _slack(found: Layer, max_corrupt: int) -> float:
    """Return Delta_L of n reports, with the worst case of corrupt reports.

    A report of k-RR counts (1{it is in the set} - s/(e^eps + k - 1)) (e^eps + k - 1)/(e^eps - 1)
    for a set of s labels, so a false report and set move the sum by at most (e^eps + 2k - 3)/(e^eps
    - 1). Where the aggregator scores, labels that the plan does not have are one more value.
    """
    e, n = math.exp(found["epsilon"]), found["n"]
    k = found["labels"] + (found["scoring"] == "aggregator")
    noise = k / (e + k - 1)
    lie = (e + 2 * k - 3) / (e - 1)
    slack = math.sqrt(math.log(4 / found["delta"]) / (2 * n)) * (1 + noise) / (1 - noise)
    return slack + max_corrupt * lie / n


def _rungs(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Check the tested thresholds and the capital of the betting tests.

    Rungs go down from 1, all but possibly the last one passed, and a rung passes with the capital
    that delta and corrupt reports require.

    The first bet is phi(z)/delta / (sqrt(n)/2) or 1/2, whichever is less, or more: z is the delta
    quantile of the normal law phi, and numbers in a range of 1 have a standard deviation of at
    most 1/2. A false report gains at least log(1 + bet). No bet is above half the most that can be
    bet, so with a target of 1/2 or more, as for alpha up to 1/2, a report earns at most log(3/2).
    """
    n, delta = found["n"], found["delta"]
    bet = first_bet(n, delta)
    least = math.log(1 / delta) + min(max_corrupt, n) * math.log1p(bet)
    certified, going = 1.0, True
    for i, rung in enumerate(found["rungs"]):
        name = f"certificate/rungs/{i}"
        yield Finding(
            f"{name}/threshold",
            going and rung["threshold"] <= certified,
            "rungs go down until one fails",
        )
        enough = rung["needed"] >= least * (1 - CLOSE) and (
            max_corrupt > 0 or rung["needed"] <= least * (1 + CLOSE)
        )
        yield Finding(
            f"{name}/needed",
            enough,
            f"{least:.6g} by delta and {max_corrupt} reports that may be lies",
        )
        if found["alpha"] <= 0.5:
            earned = found["n"] * math.log(1.5)
            yield Finding(
                f"{name}/log_capital",
                rung["log_capital"] <= earned,
                f"{found['n']} reports earn at most {earned:.6g}",
            )
        going = rung["log_capital"] >= rung["needed"]
        certified = rung["threshold"] if going else certified
    yield same("certificate/threshold", found["threshold"], certified)


def first_bet(n: int, delta: float) -> float:
    """The least that the first bet on n reports can be."""
    aim = math.exp(-(NormalDist().inv_cdf(delta) ** 2) / 2) / math.sqrt(2 * math.pi) / delta
    return min(2 * aim / math.sqrt(n), 0.5) if n else 0.0


register(
    "labels",
    LocalRules(
        variants=(
            "certified",
            "class-conditional",
            *PARTS,
            "published",
            "published-star",
        ),
        channels=lambda variant: label_channels(uniform_noise=variant.startswith("published")),
        evidence=evidence,
        strata={"class-conditional": "class", **PARTS},
        together=TOGETHER,
        levels={"certified": (MARGINAL, BAND)},
        in_order=("certified", "class-conditional", *PARTS),
    ),
)
