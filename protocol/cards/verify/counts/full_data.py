"""Verify a full-data card, beginning with the privacy profile of its training."""

import math
from collections.abc import Iterator
from fractions import Fraction

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.counts import recompute
from confide.protocol.cards.verify.counts.full_data_campaign import full_data_campaign
from confide.protocol.cards.verify.findings import Finding, number, same
from confide.protocol.cards.verify.profiles import LEAST_DELTA, RELATIVE, Training
from confide.protocol.cards.verify.released import decided, released_flags, released_score


def full_data(formal: Layer) -> Iterator[Finding]:
    """Check every clause of a full-data card: that of a campaign, or of one place."""
    if "plan" in formal:
        yield from full_data_campaign(formal)
        return
    contract, found, terms = formal["contract"], formal["calibration"], formal["training"]
    training = Training(terms["noise_multiplier"], terms["sampling_rate"], terms["steps"])
    yield same("training/batch", terms["batch"], terms["sampling_rate"] * found["n"])
    yield Finding("contract/delta", contract["delta"] >= LEAST_DELTA, f"at least {LEAST_DELTA}")
    yield same("total/delta", formal["total"]["delta"], contract["delta"])
    yield from _profile(formal, training)
    n, rank = found["n"], math.ceil((1 - Fraction(found["miss"])) * (found["n"] + 1)) + 1
    yield same("calibration/level", found["level"], found["miss"] - 1 / (n + 1))
    yield same("calibration/rank", found["rank"], rank)
    bound = _inflation(formal, rank)
    certified = bound is not recompute.NOT_CERTIFIED
    yield same(
        "calibration/inflation_ranks", found["inflation_ranks"], bound if certified else None
    )
    yield _total(formal, training)
    flags = {
        "certified": certified,
        "rank": rank <= n,
        "epsilon": formal["total"]["epsilon"] <= contract["epsilon"],
        "delta": formal["total"]["delta"] <= contract["delta"],
        **released_flags(formal["released"]),
    }
    yield from decided(formal, flags, [name for name, value in flags.items() if not value])
    yield from released_score(formal)
    yield from _threshold(formal, possible=rank <= n)
    yield same("margin", formal["margin"], 0.0)


def _profile(formal: Layer, training: Training) -> Iterator[Finding]:
    """Check the points of the profile, and the probability of a miss that follows from them."""
    contract, found = formal["contract"], formal["calibration"]
    alpha, beta = 1 - number(contract["coverage"]), number(contract["beta"])
    for i, point in enumerate(formal["profile"]):
        least = training.delta(point["epsilon"], added=True)
        holds = point["delta"] >= least * (1 - RELATIVE)
        yield Finding(
            f"profile/{i}", holds, f"delta at epsilon {point['epsilon']} is at least {least:.6g}"
        )
    miss = max(
        math.exp(-point["epsilon"]) * (float(alpha - beta) - point["delta"])
        for point in formal["profile"]
    )
    close = abs(found["miss"] - max(0.0, miss)) <= 1e-9 * abs(miss)
    yield Finding("calibration/miss", close, f"{max(0.0, miss)} by the points of the profile")


def _inflation(formal: Layer, rank: int) -> recompute.Bound:
    found = formal["calibration"]
    entry = {
        "mechanism": "rank-exponential",
        "noised_by": "aggregator",
        "bins": found["bins"],
        "epsilon_calibration": found["epsilon"],
        "n": found["n"],
    }
    beta = formal["contract"]["beta"]
    return recompute.inflation(entry, beta=beta, adjacency="add-remove", rank=rank)


def _total(formal: Layer, training: Training) -> Finding:
    """Check training and calibration together, in the worse of both directions."""
    total, epsilon = formal["total"], formal["calibration"]["epsilon"]
    spent = max(
        training.with_pure(total["epsilon"], epsilon, added=added) for added in (True, False)
    )
    holds = spent <= total["delta"] * (1 + RELATIVE)
    return Finding("total", holds, f"delta at epsilon {total['epsilon']} is {spent:.6g}")


def _threshold(formal: Layer, *, possible: bool) -> Iterator[Finding]:
    threshold, bins = formal["released"]["threshold"], formal["calibration"]["bins"]
    on_grid = threshold > 0 and threshold == round(threshold * bins) / bins
    yield Finding("released/threshold", on_grid, f"the right end of one of {bins} bins")
    yield Finding(
        "released",
        possible or threshold == 1,
        "without a rank only the top of the grid can be released",
    )
