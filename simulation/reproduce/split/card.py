"""CARD Table 2."""

from collections.abc import Sequence

from confide.aggregator.cards.contracts.contract import Contract, read_grid
from confide.aggregator.cards.contracts.search import search
from confide.aggregator.quantiles.base import ADD_REMOVE
from confide.simulation.reproduce.split import card_figure
from confide.simulation.reproduce.split.card_figure import (
    BETA,
    BINS,
    DELTA,
    EPSILON_TRAIN,
    EPSILONS,
    GAMMAS,
    SEEDS,
    SIZES,
)
from confide.simulation.reproduce.target import (
    NO,
    YES,
    Facts,
    Plot,
    Row,
    RunOptions,
    Statement,
    Target,
)

TABLE_2 = {
    (0.6,): {"N": 36, "N_run": 108, "N_form": 27, "N_sel": 3, "N_eval": 9},
    (0.7,): {"N": 36, "N_run": 108, "N_form": 18, "N_sel": 3, "N_eval": 9},
    (0.8,): {"N": 36, "N_run": 108, "N_form": 9, "N_sel": 3, "N_eval": 9},
}
REDUCTIONS = {0.6: (0.917, 0.889), 0.7: (0.917, 0.833), 0.8: (0.917, 0.667)}


def searched(asked: RunOptions) -> list[Row]:
    """Table 2: the search of a card for three coverage targets."""
    grid = read_grid(
        {
            "mechanism": "laplace-counts",
            "gamma": list(GAMMAS),
            "n": list(SIZES),
            "bins": BINS,
            "epsilon_train": EPSILON_TRAIN,
            "delta_train": DELTA,
            "epsilon_calibration": list(EPSILONS),
        }
    )
    rows = []
    for (target,) in TABLE_2:
        contract = Contract(
            "CIFAR-10",
            target,
            BETA,
            epsilon_train=EPSILON_TRAIN,
            epsilon_calibration=max(EPSILONS),
            delta=DELTA,
            adjacency=ADD_REMOVE,
        )
        formal = search(contract, grid)
        feasible = sum(entry["feasible"] for entry in formal["searched"])
        selected = len(formal["shortlist"])
        rows.append(
            {
                "gamma_target": target,
                "N": len(grid),
                "N_run": SEEDS * len(grid),
                "N_form": feasible,
                "N_sel": selected,
                "N_eval": SEEDS * selected,
                "Red. grid": round(1 - selected / len(grid), 3),
                "Red. form": round(1 - selected / feasible, 3),
            }
        )
    return rows


def _exactly(rows: Sequence[Row]) -> tuple[str, str]:
    same = all(
        row[name] == value for row in rows for name, value in TABLE_2[row["gamma_target"],].items()
    ) and all(
        (row["Red. grid"], row["Red. form"]) == REDUCTIONS[row["gamma_target"]] for row in rows
    )
    return YES if same else NO, " / ".join(f"{row['N_form']} of {row['N']}" for row in rows)


TARGETS = (
    Target(
        name="card-table-2",
        of="CARD Table 2",
        shows="feasible and selected configurations of a searched card",
        takes="1 s",
        run=searched,
        plot=Plot(x="gamma_target", y=("N_form", "N_sel"), lines="N"),
        facts=Facts(where="CARD Table 2", by=("gamma_target",), numbers=TABLE_2),
        claims=(
            Statement(
                where="CARD Table 2",
                says="27, 18 and 9 of 36 configurations are feasible, three are selected",
                answer=_exactly,
            ),
        ),
        differences=("Nothing differs: feasibility is a formula.",),
    ),
    *card_figure.TARGETS,
)
