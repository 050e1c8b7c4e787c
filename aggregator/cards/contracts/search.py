"""Searches a grid of configurations for one that keeps a contract of central calibration.

An infeasible contract gets a card too, with the margin by which it failed and the smallest change
of each kind that would make it feasible.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from confide.aggregator.cards.contracts.clauses import judge
from confide.aggregator.cards.contracts.contract import Configuration, Contract, decimal
from confide.aggregator.cards.contracts.shortlist import ShortlistTrial, chosen_by_size
from confide.aggregator.cards.contracts.suggestions import suggestions
from confide.aggregator.cards.released import decision
from confide.protocol.cards.card import BY_INFLATION, BY_SIZE, INFORMATIVE, RANDOMNESS, Layer
from confide.protocol.certificate import MARGINAL, PAC
from confide.protocol.errors import BadInput
from confide.protocol.methods.base import CENTRAL


def search(contract: Contract, grid: Iterable[Configuration]) -> Layer:
    """Make the formal layer of a central card: judge every configuration, select one or none."""
    return search_and_try(contract, grid, None)[0]


def search_and_try(
    contract: Contract, grid: Iterable[Configuration], trial: ShortlistTrial | None
) -> tuple[Layer, Layer]:
    """Make the formal and the diagnostic layer of a central card.

    With a `trial` the short list is run, and one whose sets are small is selected; without one,
    that of least certified inflation. What is measured makes no configuration feasible.
    """
    configurations = list(grid)
    if not configurations:
        raise BadInput("the grid is empty; accepted is at least one configuration")
    judged = [judge(contract, configuration) for configuration in configurations]
    shortlist = _shortlist(judged)
    best = min(
        range(len(judged)), key=lambda i: (_failures(judged[i]), -(judged[i]["level"] or 0.0), i)
    )
    selected = min(shortlist, key=lambda i: _preference(judged[i])) if shortlist else None
    measured: Layer = {}
    if trial is not None and shortlist:
        measured = trial.measure(contract, judged, shortlist)
        selected = chosen_by_size(judged, measured)
    shown = judged[best if selected is None else selected]
    failed = [name for name, holds in shown["flags"].items() if not holds]
    formal = {
        "track": CENTRAL,
        "contract": {
            "kind": PAC if contract.failure_probability else MARGINAL,
            **asdict(contract),
        },
        "searched": judged,
        "shortlist": shortlist,
        "selected": selected,
        "selected_by": BY_SIZE if measured else BY_INFLATION,
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
    return formal, measured


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
    """For each pair of budgets and each grid, the feasible configuration of least inflation.

    Inflation counts ranks; it does not tell how far apart the thresholds of two grids lie.
    """
    best: dict[tuple[float, float, str, int], int] = {}
    for i, entry in enumerate(judged):
        if entry["feasible"]:
            budgets = entry["epsilon_train"], entry["epsilon_calibration"]
            place = (*budgets, entry["grid"], entry["bins"])
            if place not in best or _preference(entry) < _preference(judged[best[place]]):
                best[place] = i
    return sorted(best.values())
