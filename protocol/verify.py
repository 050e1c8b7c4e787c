"""Deciding a card again from its formal layer alone, with code that shares nothing with the code that wrote it.

Every clause is recomputed and compared with what the card says; the first that differs is named. What cannot be recomputed
without data (that the counts were as the card says, that owners ran the channel it names) is what the signature vouches for.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
from scipy.special import bdtrc, gammaln

from protocol import recompute
from protocol.card import Card, Layer
from protocol.findings import CLOSE, Finding, number, same
from protocol.verify_full_data import full_data


def verify(card: Card, *, key: bytes | None = None) -> list[Finding]:
    """Every clause of a card, recomputed; a key demands that signer."""
    findings = [Finding("signature", card.signature_holds, f"key {card.key.hex() or 'none'}")]
    if key is not None:
        findings.append(Finding("signer", card.key == key, f"expected {key.hex()}"))
    findings += TRACKS[card.formal["track"]](card.formal)
    findings += _views(card)
    return findings


def _views(card: Card) -> Iterator[Finding]:
    private = {"width", "observed_inflation"} & set(card.diagnostic)
    yield Finding("view", card.view == "auditor" or not private, "data-dependent diagnostics are for the auditor only")


def _central(formal: Layer) -> Iterator[Finding]:
    contract, searched = formal["contract"], formal["searched"]
    for i, entry in enumerate(searched):
        expected = _judged(contract, entry)
        for name in ("rank", "level", "inflation_ranks", "flags", "feasible"):
            yield same(f"searched/{i}/{name}", entry[name], expected[name])
    feasible = [i for i, entry in enumerate(searched) if _judged(contract, entry)["feasible"]]
    budgets = {(searched[i]["epsilon_train"], searched[i]["epsilon_calibration"]) for i in feasible}
    shortlist = sorted(min((i for i in feasible if _budget(searched[i]) == budget), key=lambda i: (*_order(searched[i]), i))
                       for budget in budgets)  # fmt: skip
    yield same("shortlist", formal["shortlist"], shortlist)
    selected = min(shortlist, key=lambda i: (*_order(searched[i]), i)) if shortlist else None
    yield same("selected", formal["selected"], selected)
    yield same("decision", formal["decision"], "feasible" if shortlist else "infeasible")
    fewest = min(sum(not holds for holds in entry["flags"].values()) for entry in searched)
    nearest = [i for i, entry in enumerate(searched) if sum(not holds for holds in entry["flags"].values()) == fewest]
    best = selected if selected is not None else max(nearest, key=lambda i: (searched[i]["level"] or 0.0, -i))
    yield same("best", formal["best"], best)
    shown = searched[best]
    failed = [name for name, holds in _judged(contract, shown)["flags"].items() if not holds]
    yield same("failed", formal["failed"], failed)
    margin = None if shown["level"] is None else float(number(shown["level"]) - number(contract["coverage"]))
    yield same("margin", formal["margin"], margin)
    for name in ("epsilon", "delta"):
        total = float(number(shown[f"{name}_train"]) + number(shown[f"{name}_calibration"]))
        yield same(f"total/{name}", formal["total"][name], total)
    yield same("total/composition", formal["total"]["composition"], "sequential")
    yield from _suggestions(formal, shortlist)
    released = formal["released"]
    if released is not None:
        edge = (released["bin"] + 1) / shown["bins"]
        yield same("released/threshold", released["threshold"], edge)
        yield Finding("released/bin", released["bin"] < shown["bins"], f"of {shown['bins']} bins")
        yield Finding("released", bool(shortlist), "a threshold was released under an infeasible contract")


def _budget(entry: Layer) -> tuple[float, float]:
    return entry["epsilon_train"], entry["epsilon_calibration"]


def _order(entry: Layer) -> tuple[float, ...]:
    inflation = entry["inflation_ranks"]
    share = math.inf if inflation is None else inflation / entry["n"]
    return share, entry["gamma"], sum(_budget(entry)), entry["bins"]


def _judged(contract: Layer, entry: Layer) -> Layer:
    """What follows from a configuration under a contract."""
    n, rank = entry["n"], math.ceil((entry["n"] + 1) * number(entry["gamma"]))
    bound = recompute.inflation(entry, beta=contract["beta"], adjacency=contract["adjacency"], rank=rank)
    certified = bound is not recompute.NOT_CERTIFIED
    inflation = bound if certified and rank <= n else None
    level = float(max(Fraction(0), number(entry["gamma"]) - number(contract["beta"]))) if certified else None
    most = contract["max_inflation"]
    flags = {
        "certified": certified,
        "rank": rank <= n,
        "coverage": level is not None and level >= contract["coverage"],
        "epsilon_train": entry["epsilon_train"] <= contract["epsilon_train"],
        "epsilon_calibration": entry["epsilon_calibration"] <= contract["epsilon_calibration"],
        "delta": number(entry["delta_train"]) + number(entry["delta_calibration"]) <= number(contract["delta"]),
        "inflation": most is None or (inflation is not None and inflation <= most * n),
    }
    return {"rank": rank, "level": level, "inflation_ranks": inflation, "flags": flags, "feasible": all(flags.values())}


def _suggestions(formal: Layer, shortlist: list[int]) -> Iterator[Finding]:
    """Each suggested change is enough, and a little less of it is not."""
    yield Finding("suggestions", not (shortlist and formal["suggestions"]), "a feasible contract needs none")
    for i, suggestion in enumerate(formal["suggestions"]):
        contract, entry = suggestion["contract"], suggestion["configuration"]
        yield Finding(f"suggestions/{i}", _judged(contract, entry)["feasible"], "following it must make the contract feasible")
        enough = _judged(*_slightly_less(suggestion, formal))["feasible"]
        yield Finding(f"suggestions/{i}/change", not enough, "a smaller change would do")


def _slightly_less(suggestion: Layer, formal: Layer) -> tuple[Layer, Layer]:
    """The contract and configuration one step before the suggested ones."""
    contract, entry, step = dict(suggestion["contract"]), dict(suggestion["configuration"]), 0.001
    if suggestion["change"] == "more records":
        entry["n"] -= 1
    elif suggestion["change"] == "lower target":
        contract["coverage"] += 1e-9
    else:
        for name in ("epsilon_train", "epsilon_calibration"):
            if contract[name] > formal["contract"][name]:
                contract[name] -= step
        if all(entry["epsilon_calibration"] != other["epsilon_calibration"] for other in formal["searched"]):
            entry["epsilon_calibration"] -= step
    return contract, entry


def _local(formal: Layer) -> Iterator[Finding]:
    contract, found = formal["contract"], formal["certificate"]
    yield same("contract/coverage", contract["coverage"], float(1 - number(found["alpha"])))
    flags = {
        "coverage": number(found["level"]) >= number(contract["coverage"]),
        "kind": found["kind"] == contract["kind"],
        "delta": found["delta"] is not None and found["delta"] <= contract["delta"],
        "epsilon": found["epsilon"] is not None and found["epsilon"] <= contract["epsilon"],
        "reports": found["n"] >= contract["minimum_reports"],
    }
    yield same("flags", formal["flags"], flags)
    yield same("decision", formal["decision"], "feasible" if all(flags.values()) else "infeasible")
    yield same("failed", formal["failed"], [name for name, holds in flags.items() if not holds])
    yield same("margin", formal["margin"], float(number(found["level"]) - number(contract["coverage"])))
    yield from _level(found)
    if found["method"] == "bits" and found["variant"] in ("certified", "one-shot"):
        yield from _bit_rungs(found, contract["max_corrupt"])
    elif found["method"] == "labels" and found["variant"] == "certified":
        yield from _label_rungs(found)
    yield from _shuffle(formal)


def _level(found: Layer) -> Iterator[Finding]:
    slack = found["slack"] or 0.0 if found["variant"] == "published" else 0.0
    expected = max(0.0, 1 - found["alpha"] - slack)
    yield same("certificate/level", found["level"], expected)


def _bit_rungs(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    """Walk the rungs again: which thresholds the tallies certify, at which levels."""
    keep = 1 / (1 + math.exp(-found["epsilon"]))
    rate = (1 - found["alpha"]) * (2 * keep - 1) + 1 - keep
    planned = [int(found["planned"] * share) for share in recompute.STAGE_SHARES]
    level, certified, failed, risen = found["delta"], 1.0, None, False
    for i, rung in enumerate(found["rungs"]):
        name = f"certificate/rungs/{i}"
        allowed = (0.0 if failed is None else failed) <= rung["threshold"] < certified
        yield Finding(f"{name}/threshold", allowed and level > 0, f"below {certified}, from {failed or 0.0}, at level {level}")
        rest = sum(planned[i + 1 :]) if found["variant"] == "certified" else 0
        yield same(f"{name}/rest", rung["rest"], rest)
        yield same(f"{name}/level", rung["level"], level)
        yield Finding(f"{name}/ones", 0 <= rung["ones"] <= rung["n"], "ones among the answers")
        risen = risen or (failed is not None and rung["threshold"] > failed)
        share = 0.0 if risen else 0.25
        ones = max(0, rung["ones"] - max_corrupt)
        after = _level_after(ones, rung["n"], rest, level, rate, share)
        yield Finding(
            f"{name}/level_after", rung["level_after"] <= after * (1 + CLOSE) + 1e-12,
            f"the card says {rung['level_after']}, recomputed {after}",
        )  # fmt: skip
        if rung["level_after"] == 1.0:
            certified, level, failed = rung["threshold"], 0.0 if risen else found["delta"], None
        else:
            level, failed = rung["level_after"], rung["threshold"]
    yield same("certificate/threshold", found["threshold"], certified)


def _level_after(ones: int, n: int, rest: int, level: float, rate: float, share: float) -> float:
    """The conditional level after a stage, from tails of the regularised incomplete beta function."""

    def tail(count: int, size: int) -> float:
        return 1.0 if count <= 0 else 0.0 if count > size else float(bdtrc(count - 1, size, rate))

    stop = recompute.first(lambda count: tail(count, n) <= level * (share if rest else 1.0), n + 1)
    if ones >= stop:
        return 1.0
    if rest == 0:
        return 0.0
    counts = np.arange(stop)
    masses = np.exp(gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
                    + counts * math.log(rate) + (n - counts) * math.log1p(-rate))  # fmt: skip

    def spent(pooled: int) -> float:
        needed = pooled - counts
        later = np.where(needed <= 0, 1.0, np.where(needed > rest, 0.0, bdtrc(np.clip(needed - 1, 0, rest), rest, rate)))
        return tail(stop, n) + float(masses @ later)

    pooled = recompute.first(lambda count: spent(count) <= level, n + rest + 1)
    return tail(pooled - ones, rest)


def _label_rungs(found: Layer) -> Iterator[Finding]:
    """Rungs go down from 1, all but perhaps the last passed, and passing takes the capital that delta asks for."""
    certified, going = 1.0, True
    for i, rung in enumerate(found["rungs"]):
        name = f"certificate/rungs/{i}"
        yield Finding(f"{name}/threshold", going and rung["threshold"] <= certified, "rungs go down until one fails")
        yield Finding(
            f"{name}/needed", rung["needed"] >= math.log(1 / found["delta"]) * (1 - CLOSE), f"at least log 1/{found['delta']}"
        )
        going = rung["log_capital"] >= rung["needed"]
        certified = rung["threshold"] if going else certified
    yield same("certificate/threshold", found["threshold"], certified)


def _shuffle(formal: Layer) -> Iterator[Finding]:
    shuffle, local = formal["shuffle"], formal["certificate"]["epsilon"]
    if "epsilon" not in shuffle:
        return
    divergence = recompute.shuffle_divergence(shuffle["epsilon"], local=local, n=shuffle["n"])
    holds = divergence <= shuffle["delta"] * (1 + 1e-3) or shuffle["epsilon"] >= local
    yield Finding("shuffle/epsilon", holds, f"delta at {shuffle['epsilon']} is {divergence:.3g} of {shuffle['delta']:.3g}")


TRACKS: dict[str, Callable[[Layer], Iterator[Finding]]] = {
    "central": _central,
    "local": _local,
    "full-data": full_data,
}
