"""Deciding the card of a local-DP campaign again: its level, and the thresholds its tallies
certify."""

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import bdtrc, gammaln

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify import recompute
from confide.protocol.cards.verify.findings import CLOSE, Finding, number, same
from confide.protocol.cards.verify.released import decided, released_flags, released_score
from confide.protocol.certificate import DROPOUTS, IID, MIXTURE
from confide.protocol.channels.kinds import LABEL_CHANNELS
from confide.protocol.plan import LOCAL_VARIANTS

ROUNDS = 10
SHUFFLE_DELTA = 1e-6


def local(formal: Layer) -> Iterator[Finding]:
    contract, found = formal["contract"], formal["certificate"]
    yield same("contract/coverage", contract["coverage"], float(1 - number(found["alpha"])))
    flags = {
        "coverage": number(found["level"]) >= number(contract["coverage"]),
        "kind": found["kind"] == contract["kind"],
        "delta": found["delta"] is not None and found["delta"] <= contract["delta"],
        "epsilon": found["epsilon"] is not None and found["epsilon"] <= contract["epsilon"],
        "reports": found["n"] >= contract["minimum_reports"],
        **released_flags(formal["released"]),
    }
    yield from decided(formal, flags, [name for name, holds in flags.items() if not holds])
    yield from released_score(formal)
    for name in ("score", "threshold"):
        yield same(f"released/{name}", formal["released"][name], found[name])
    yield same(
        "margin", formal["margin"], float(number(found["level"]) - number(contract["coverage"]))
    )
    yield from _form(formal)
    yield from _level(found, contract["max_corrupt"])
    if found["method"] == "bits" and found["variant"] in ("certified", "one-shot"):
        yield from _bit_rungs(found, contract["max_corrupt"])
    elif found["method"] == "labels" and found["variant"] == "certified":
        yield from _label_rungs(found, contract["max_corrupt"])
    yield from _shuffle(formal)


def _form(formal: Layer) -> Iterator[Finding]:
    """That the parts belong together: methods with their variants and channels, and the assumptions
    of a PAC statement."""
    contract, found = formal["contract"], formal["certificate"]
    yield Finding(
        "certificate/variant",
        found["variant"] in LOCAL_VARIANTS[found["method"]],
        f"of {found['method']}",
    )
    channels = ("bit",) if found["method"] == "bits" else LABEL_CHANNELS
    if found["variant"].startswith("published") and found["method"] == "labels":
        channels = ("k-rr",)
    yield Finding(
        "certificate/channel", found["channel"] in channels, f"one of {', '.join(channels)}"
    )
    yield same("contract/adjacency", contract["adjacency"], "replace-one")
    yield same("contract/unit", contract["unit"], "record")
    yield same("certificate/assumptions", found["assumptions"], [IID, MIXTURE, DROPOUTS])
    counted = [rung["n"] for rung in found["rungs"] if "n" in rung]
    together = sum(counted) if found["variant"] == "certified" else max(counted, default=0)
    yield Finding(
        "certificate/n", together <= found["n"], f"the rungs alone count {together} reports"
    )
    if found["method"] == "labels":
        yield same("certificate/planned", found["planned"], None)
    trivial = found["threshold"] >= 1
    yield Finding(
        "certificate/reason",
        (found["reason"] is not None) == trivial,
        "given where the threshold is 1, and only there",
    )
    if not trivial:
        yield Finding(
            "certificate/threshold",
            found["n"] > 0,
            "without a report only the top of the grid covers",
        )


def _level(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """The level follows from alpha, and for the published variants from a slack that n and epsilon
    leave no smaller."""
    slack = found["slack"]
    if not found["variant"].startswith("published"):
        yield same("certificate/slack", slack, None)
    elif found["n"]:
        least = _least_slack(found, max_corrupt)
        # Of bits only the answers of all rounds are on the card, so the smallest round is known
        # from above.
        most = least if found["method"] == "labels" else math.inf
        holds = slack is not None and least * (1 - CLOSE) <= slack <= most * (1 + CLOSE)
        yield Finding("certificate/slack", holds, f"at least {least:.6g}, at most {most:.6g}")
    else:
        yield same("certificate/slack", slack, None)
    expected = (
        max(0.0, 1 - found["alpha"] - (slack or 0.0))
        if found["variant"] == "published"
        else 1 - found["alpha"]
    )
    if found["variant"] == "published" and slack is None:
        expected = 0.0
    yield same("certificate/level", found["level"], expected)


def _least_slack(found: Layer, max_corrupt: int) -> float:
    """Delta_L of n reports, or Delta_S of ten rounds of at most planned/10 answers, with the worst
    of the corrupt ones.

    A report of k-RR counts (1{it is in the set} - s/(e^eps + k - 1)) (e^eps + k - 1)/(e^eps - 1)
    for a set of s labels, so a lie about report and set moves the sum by at most (e^eps + 2k -
    3)/(e^eps - 1).
    """
    e, n, delta = math.exp(found["epsilon"]), found["n"], found["delta"]
    if found["method"] == "labels":
        noise = found["labels"] / (e + found["labels"] - 1)
        lie = (e + 2 * found["labels"] - 3) / (e - 1)
        return (
            math.sqrt(math.log(4 / delta) / (2 * n)) * (1 + noise) / (1 - noise)
            + max_corrupt * lie / n
        )
    answers = min(n, found["planned"] // ROUNDS)
    if not answers:
        return 0.0
    scale = (e + 1) / (e - 1)
    return scale * (math.sqrt(math.log(2 * ROUNDS / delta) / (2 * answers)) + max_corrupt / answers)


def _bit_rungs(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Walk the rungs again: which thresholds the tallies certify, at which levels."""
    keep = 1 / (1 + math.exp(-found["epsilon"]))
    rate = (1 - found["alpha"]) * (2 * keep - 1) + 1 - keep
    planned = [int(found["planned"] * share) for share in recompute.STAGE_SHARES]
    level, certified, failed, risen = found["delta"], 1.0, None, False
    for i, rung in enumerate(found["rungs"]):
        name = f"certificate/rungs/{i}"
        allowed = (0.0 if failed is None else failed) <= rung["threshold"] < certified
        yield Finding(
            f"{name}/threshold",
            allowed and level > 0,
            f"below {certified}, from {failed or 0.0}, at level {level}",
        )
        rest = sum(planned[i + 1 :]) if found["variant"] == "certified" else 0
        yield same(f"{name}/rest", rung["rest"], rest)
        yield same(f"{name}/level", rung["level"], level)
        yield Finding(f"{name}/ones", 0 <= rung["ones"] <= rung["n"], "ones among the answers")
        risen = risen or (failed is not None and rung["threshold"] > failed)
        share = 0.0 if risen else 0.25
        ones = max(0, rung["ones"] - max_corrupt)
        after = _level_after(ones, rung["n"], rest, level, rate, share)
        yield Finding(
            f"{name}/level_after",
            rung["level_after"] <= after * (1 + CLOSE),
            f"the card says {rung['level_after']}, recomputed {after}",
        )
        if rung["level_after"] == 1.0:
            certified, level, failed = rung["threshold"], 0.0 if risen else found["delta"], None
        else:
            level, failed = rung["level_after"], rung["threshold"]
    yield same("certificate/threshold", found["threshold"], certified)


def _level_after(ones: int, n: int, rest: int, level: float, rate: float, share: float) -> float:
    """The conditional level after a stage, from tails of the regularised incomplete beta
    function."""

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


def _label_rungs(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Rungs go down from 1, all but perhaps the last passed, and passing takes the capital that
    delta and liars ask for.

    A bet is sqrt(2 log(1/delta) / (n v)) or 3/(4 m), whichever is less, with v the running variance
    of numbers in [0, 1], at most 3/8, and m below 1 the mean under test. A lie gains log(1 + bet (1
    - m)) - log(1 - bet m), at least log(1 + bet). With m at least 1/2, as for alpha up to 1/2, no
    report earns more than log(1 + 3/4).
    """
    bet = math.sqrt(2 * math.log(1 / found["delta"]) / (0.375 * found["n"])) if found["n"] else 0.0
    least = math.log(1 / found["delta"]) + min(max_corrupt, found["n"]) * math.log1p(min(bet, 0.75))
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
            earned = found["n"] * math.log(1.75)
            yield Finding(
                f"{name}/log_capital",
                rung["log_capital"] <= earned,
                f"{found['n']} reports earn at most {earned:.6g}",
            )
        going = rung["log_capital"] >= rung["needed"]
        certified = rung["threshold"] if going else certified
    yield same("certificate/threshold", found["threshold"], certified)


def _shuffle(formal: Layer) -> Iterator[Finding]:
    """Amplification is for bits, at the delta that cards state, among no more reports than there
    were."""
    shuffle, found = formal["shuffle"], formal["certificate"]
    if "epsilon" not in shuffle:
        return
    possible = (
        found["method"] == "bits"
        and shuffle["n"] <= found["n"]
        and shuffle["delta"] == SHUFFLE_DELTA
    )
    yield Finding(
        "shuffle",
        possible,
        f"bits only, at delta {SHUFFLE_DELTA}, among at most {found['n']} reports",
    )
    if not possible:
        return
    divergence = recompute.shuffle_divergence(
        shuffle["epsilon"], local=found["epsilon"], n=shuffle["n"]
    )
    holds = divergence <= shuffle["delta"] * (1 + 1e-3) or shuffle["epsilon"] >= found["epsilon"]
    yield Finding(
        "shuffle/epsilon",
        holds,
        f"delta at {shuffle['epsilon']} is {divergence:.3g} of {shuffle['delta']:.3g}",
    )
