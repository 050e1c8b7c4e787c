"""Searches a grid of configurations for one that keeps a contract of central calibration.

An infeasible contract gets a card too, with the margin by which it failed and the smallest change
of each kind that would make it feasible.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from confide.aggregator.cards.clauses import judge
from confide.aggregator.cards.contract import Configuration, Contract, decimal
from confide.aggregator.cards.released import decision
from confide.aggregator.cards.suggestions import suggestions
from confide.protocol.cards.card import INFORMATIVE, RANDOMNESS, Layer
from confide.protocol.certificate import MARGINAL, PAC
from confide.protocol.errors import BadInput


def search(contract: Contract, grid: Iterable[Configuration]) -> Layer:
    """Make the formal layer of a central card: judge every configuration, select one or none."""
    configurations = list(grid)
    if not configurations:
        raise BadInput("the grid is empty; accepted is at least one configuration")
    judged = [judge(contract, configuration) for configuration in configurations]
    shortlist = _shortlist(judged)
    best = min(
        range(len(judged)), key=lambda i: (_failures(judged[i]), -(judged[i]["level"] or 0.0), i)
    )
    selected = min(shortlist, key=lambda i: _preference(judged[i])) if shortlist else None
    shown = judged[best if selected is None else selected]
    failed = [name for name, holds in shown["flags"].items() if not holds]
    return {
        "track": "central",
        "contract": {
            "kind": PAC if contract.failure_probability else MARGINAL,
            **asdict(contract),
        },
        "searched": judged,
        "shortlist": shortlist,
        "selected": selected,
        "best": best if selected is None else selected,
        "flags": {"configuration": selected is not None, RANDOMNESS: True, INFORMATIVE: True},
        "decision": decision(failed),
        "margin": None
        if shown["level"] is None
        else float(decimal(shown["level"]) - decimal(contract.coverage)),
        "failed": failed,
        "suggestions": suggestions(contract, configurations) if selected is None else [],
        "total": {
            "epsilon": float(
                decimal(shown["epsilon_train"]) + decimal(shown["epsilon_calibration"])
            ),
            "delta": float(decimal(shown["delta_train"]) + decimal(shown["delta_calibration"])),
            "composition": "sequential",
        },
        "plan": None,
        "released": None,
    }


def _failures(judged: Layer) -> int:
    return sum(not holds for holds in judged["flags"].values())


def _preference(judged: Layer) -> tuple[float, float, float, float]:
    """The sort key of feasible configurations, the preferred one first.

    Least certified inflation first, as a share of the records; then the lower nominal coverage,
    then the smaller budget.
    """
    share = math.inf if judged["inflation_share"] is None else judged["inflation_share"]
    return (
        share,
        judged["gamma"],
        judged["epsilon_train"] + judged["epsilon_calibration"],
        judged["bins"],
    )


def _shortlist(judged: Sequence[Layer]) -> list[int]:
    """For each pair of budgets, the feasible configuration of least inflation."""
    best: dict[tuple[float, float], int] = {}
    for i, entry in enumerate(judged):
        if entry["feasible"]:
            budgets = entry["epsilon_train"], entry["epsilon_calibration"]
            if budgets not in best or _preference(entry) < _preference(judged[best[budgets]]):
                best[budgets] = i
    return sorted(best.values())
