"""Verify a central card: every searched configuration, the selection and the suggestions."""

import math
from collections.abc import Iterator
from fractions import Fraction

from confide.protocol.cards.card import BY_SIZE, Layer
from confide.protocol.cards.verify.counts import recompute
from confide.protocol.cards.verify.counts.divided import divided, of_a_part, shares
from confide.protocol.cards.verify.findings import Finding, number, same
from confide.protocol.cards.verify.released import (
    decided,
    on_grid,
    released_flags,
    released_score,
)


def central(formal: Layer) -> Iterator[Finding]:
    whole, searched = formal["contract"], formal["searched"]
    promised = "PAC" if whole["failure_probability"] else "marginal"
    yield same("contract/kind", whole["kind"], promised)
    yield from _unit(whole)
    # What is judged is one release; several parts have one each.
    contract = of_a_part(whole, formal)
    for i, entry in enumerate(searched):
        expected = _judged(contract, entry)
        for name, value in expected.items():
            yield same(f"searched/{i}/{name}", entry[name], value)
    shortlist = _shortlist(contract, searched)
    yield same("shortlist", formal["shortlist"], shortlist)
    selected = min(shortlist, key=lambda i: (*_order(searched[i]), i)) if shortlist else None
    if formal["selected_by"] == BY_SIZE and formal["selected"] in shortlist:
        # Measurements may choose among those that keep the contract, and nothing else.
        selected = formal["selected"]
    yield same("selected", formal["selected"], selected)
    best = _nearest(searched) if selected is None else selected
    yield same("best", formal["best"], best)
    shown = searched[best]
    last = released_flags(formal["released"])
    clauses = _judged(contract, shown)["flags"] | last
    yield from decided(
        formal,
        {"configuration": bool(shortlist), **last},
        [name for name in clauses if not clauses[name]],
    )
    margin = (
        None
        if shown["level"] is None
        else float(number(shown["level"]) - number(contract["coverage"]))
    )
    yield same("margin", formal["margin"], margin)
    for name in ("epsilon", "delta"):
        spent = number(shown[f"{name}_calibration"]) * shares(formal)
        total = float(number(shown[f"{name}_train"]) + spent)
        yield same(f"total/{name}", formal["total"][name], total)
    yield same("total/composition", formal["total"]["composition"], "sequential")
    if "strata" in formal:
        yield same("suggestions", formal["suggestions"], [])
        yield from divided(formal, shown, lambda entry: _judged(contract, entry))
    else:
        yield from _suggestions(formal, shortlist)
    if formal["released"] is not None:
        yield from _released(formal, shown, feasible=bool(shortlist))


def _shortlist(contract: Layer, searched: list[Layer]) -> list[int]:
    """The best feasible configuration of every budget and grid."""
    feasible = [i for i, entry in enumerate(searched) if _judged(contract, entry)["feasible"]]
    return sorted(
        min(
            (i for i in feasible if _place(searched[i]) == place),
            key=lambda i: (*_order(searched[i]), i),
        )
        for place in {_place(searched[i]) for i in feasible}
    )


def _nearest(searched: list[Layer]) -> int:
    """Of the configurations that fail the fewest clauses, the one of the highest level."""
    failures = [sum(not holds for holds in entry["flags"].values()) for entry in searched]
    fewest = [i for i, count in enumerate(failures) if count == min(failures)]
    return max(fewest, key=lambda i: (searched[i]["level"] or 0.0, -i))


def _released(formal: Layer, shown: Layer, *, feasible: bool) -> Iterator[Finding]:
    """Check the released threshold of a campaign, whose one configuration is shown."""
    released, searched = formal["released"], formal["searched"]
    yield from released_score(formal)
    yield Finding(
        "searched", len(searched) == 1, "a campaign has the one configuration of its plan"
    )
    yield from on_grid(released, shown)
    bounded = isinstance(shown["inflation_ranks"], int)
    whole = (
        released["complete"] == bounded
        if shown["noised_by"] == "aggregator"
        else bounded or not released["complete"]
    )
    yield Finding(
        "released/complete",
        whole,
        "only where the inflation has a bound; always so where nobody can stay away",
    )
    top = released["bin"] == shown["bins"] - 1
    # A private part has a rank for any number of records, and what it releases is drawn by its law.
    private = formal.get("strata", {}).get("by") == "class"
    yield Finding(
        "released",
        feasible or top or private,
        "an infeasible contract can release the top of the grid only",
    )


def _unit(contract: Layer) -> Iterator[Finding]:
    """Check the privacy unit.

    Every mechanism here protects one record, so it protects a client only if the card says that no
    client has more than one.
    """
    bound = 1 if contract["unit"] == "client" else None
    yield same("contract/records_per_client", contract["records_per_client"], bound)


def _budget(entry: Layer) -> tuple[float, float]:
    return entry["epsilon_train"], entry["epsilon_calibration"]


def _place(entry: Layer) -> tuple[float, float, str, int]:
    return (*_budget(entry), entry["grid"], entry["bins"])


def _order(entry: Layer) -> tuple[float, ...]:
    inflation = entry["inflation_ranks"]
    share = math.inf if inflation is None else inflation / entry["n"]
    return share, entry["gamma"], sum(_budget(entry)), entry["bins"]


def _judged(contract: Layer, entry: Layer) -> Layer:
    """Derive the consequences of a configuration under a contract."""
    n, alpha = entry["n"], 1 - number(entry["gamma"])
    bound: recompute.Bound = recompute.NOT_CERTIFIED
    delta = contract["failure_probability"]
    aimed = recompute.rank(entry, alpha=alpha, beta=contract["beta"], delta=delta)
    rank = aimed or math.ceil((n + 1) * (1 - alpha))
    if aimed:
        bound = recompute.inflation(
            entry, beta=contract["beta"], adjacency=contract["adjacency"], rank=rank
        )
    certified = bound is not recompute.NOT_CERTIFIED
    inflation = bound if certified and rank <= n else None
    share = inflation / n if isinstance(inflation, int) else None
    level = (
        float(max(Fraction(0), number(entry["gamma"]) - number(0.0 if delta else contract["beta"])))
        if certified
        else None
    )
    most = contract["max_inflation"]
    flags = {
        "certified": certified,
        "rank": rank <= n,
        "coverage": level is not None and level >= contract["coverage"],
        "epsilon_train": entry["epsilon_train"] <= contract["epsilon_train"],
        "epsilon_calibration": entry["epsilon_calibration"] <= contract["epsilon_calibration"],
        "delta": number(entry["delta_train"]) + number(entry["delta_calibration"])
        <= number(contract["delta"]),
        "inflation": most is None or (share is not None and share <= most),
    }
    return {
        "rank": rank,
        "level": level,
        "inflation_ranks": inflation,
        "inflation_share": share,
        "coverage_at_most": _upper(contract, n, above=rank + inflation)
        if isinstance(inflation, int)
        else None,
        "flags": flags,
        "feasible": all(flags.values()),
    }


def _upper(contract: Layer, n: int, *, above: int) -> float | None:
    """An upper bound on coverage, except for one bin's share: ranks up to `above`, and beta."""
    if not contract["beta"]:
        return None
    return float(min(Fraction(1), Fraction(above, n + 1) + number(contract["beta"])))


# The fields that each kind of change may touch, in the contract and in a searched configuration.
CHANGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "more records": ((), ("n",)),
    "more epsilon": (("epsilon_train", "epsilon_calibration"), ("epsilon_calibration",)),
    "higher gamma": ((), ("gamma",)),
    "lower target": (("coverage",), ()),
}
MOST_RECORDS, MOST_EPSILON = 10**9, 40.0


def _suggestions(formal: Layer, shortlist: list[int]) -> Iterator[Finding]:
    """Check the suggested changes.

    Each one must be of the kind it says and sufficient, and slightly less of it must not be
    sufficient. No helpful change may be missing.
    """
    given = {suggestion["change"] for suggestion in formal["suggestions"]}
    yield Finding("suggestions", len(given) == len(formal["suggestions"]), "one of a kind")
    if shortlist:
        yield Finding("suggestions", not given, "a feasible contract needs none")
        return
    for kind in CHANGES:
        yield Finding(
            f"suggestions/{kind}",
            (kind in given) == _helps(kind, formal),
            "whether such a change can help",
        )
    for i, suggestion in enumerate(formal["suggestions"]):
        contract, entry = suggestion["contract"], suggestion["configuration"]
        terms, parts = CHANGES[suggestion["change"]]
        kept = all(
            contract[name] == formal["contract"][name] for name in contract if name not in terms
        )
        found = any(
            all(entry[name] == other[name] for name in entry if name not in parts)
            for other in formal["searched"]
        )
        yield Finding(
            f"suggestions/{i}/kind",
            kept and found,
            "only what the kind names may differ from what was searched",
        )
        yield Finding(
            f"suggestions/{i}",
            _judged(contract, entry)["feasible"],
            "following it must make the contract feasible",
        )
        enough = _judged(*_slightly_less(suggestion, formal))["feasible"]
        yield Finding(f"suggestions/{i}/change", not enough, "a smaller change would do")


def _helps(kind: str, formal: Layer) -> bool:
    """Whether any amount of one kind of change makes some searched configuration feasible."""
    contract = formal["contract"]
    for entry in formal["searched"]:
        if kind == "more records" and _judged(contract, entry | {"n": MOST_RECORDS})["feasible"]:
            return True
        if kind == "more epsilon":
            wide = contract | {
                "epsilon_train": max(contract["epsilon_train"], entry["epsilon_train"])
            }
            wide |= {"epsilon_calibration": max(contract["epsilon_calibration"], MOST_EPSILON)}
            if _judged(wide, entry | {"epsilon_calibration": MOST_EPSILON})["feasible"]:
                return True
        aimed = entry | {"gamma": float(number(contract["coverage"]) + number(contract["beta"]))}
        if (
            kind == "higher gamma"
            and entry["gamma"] < aimed["gamma"]
            and _judged(contract, aimed)["feasible"]
        ):
            return True
        lower = contract | {"coverage": entry["level"] or 0.0}
        if (
            kind == "lower target"
            and 0 < lower["coverage"] < contract["coverage"]
            and _judged(lower, entry)["feasible"]
        ):
            return True
    return False


def _slightly_less(suggestion: Layer, formal: Layer) -> tuple[Layer, Layer]:
    """Return the contract and configuration one step before the suggested ones."""
    contract, entry, step = dict(suggestion["contract"]), dict(suggestion["configuration"]), 0.001
    if suggestion["change"] == "more records":
        entry["n"] -= 1
    elif suggestion["change"] == "lower target":
        contract["coverage"] += 1e-9
    elif suggestion["change"] == "higher gamma":
        entry["gamma"] -= 1e-9
    else:
        for name in ("epsilon_train", "epsilon_calibration"):
            if contract[name] > formal["contract"][name]:
                contract[name] -= step
        if all(
            entry["epsilon_calibration"] != other["epsilon_calibration"]
            for other in formal["searched"]
        ):
            entry["epsilon_calibration"] -= step
    return contract, entry
