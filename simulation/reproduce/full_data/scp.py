"""SCP: Table 2, Tables S7 to S9, Figure S1."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from confide.simulation.reproduce.full_data.scp_coupling import (
    CLIP,
    RATE,
    RUNS,
    SAMPLING_RATE,
    STEPS,
    coupled,
)
from confide.simulation.reproduce.full_data.scp_numbers import HOUSING, SETS
from confide.simulation.reproduce.summaries import spread
from confide.simulation.reproduce.target import (
    NO,
    PARTLY,
    YES,
    DataFile,
    Facts,
    Plot,
    Row,
    RunOptions,
    Statement,
    Target,
)

SIZES = (10_000, 15_000, 20_000, 25_000, 30_000)
CALIFORNIA = DataFile(
    name="california_housing.csv",
    what="a csv of 20,640 districts: longitude, latitude, ..., median_income, median_house_value, "
    "or scikit-learn's MedInc, HouseAge, ..., MedHouseVal",
)
METHODS = "method"
WIDTHS = {"coverage": "coverage", "mean size": "mean_size"}


def sets(asked: RunOptions, *, epsilon: float, sizes: Sequence[int] = SIZES) -> list[Row]:
    """Coverage and sizes of five-class networks, every method on the same records."""
    from confide.simulation.reproduce.full_data.cells import averages, scp_cells

    cells = list(scp_cells(sizes, (epsilon,)))
    measures = WIDTHS | {"singletons": "singletons"}
    return averages(cells, asked.kept, asked.trials, measures=measures)


def housing(asked: RunOptions) -> list[Row]:
    """Coverage and width of intervals of house values."""
    from confide.simulation.reproduce.full_data.cells import averages
    from confide.simulation.reproduce.full_data.scp_regression import california_cells

    cells = california_cells(asked.files[CALIFORNIA.name])
    return averages(cells, asked.kept, asked.trials, measures=WIDTHS)


def made_up_line(asked: RunOptions) -> list[Row]:
    """The same on the made-up line, whose targets are linear in five features."""
    from confide.simulation.reproduce.full_data.cells import averages
    from confide.simulation.reproduce.full_data.scp_regression import line_cells

    return averages(line_cells(), asked.kept, asked.trials, measures=WIDTHS)


def _by_method(rows: Sequence[Row], column: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["method"], []).append(row[column])
    return found


def _near_target(rows: Sequence[Row]) -> tuple[str, str]:
    found = _by_method(rows, "coverage")
    f, a = found["scp-f"], found["scp-a"]
    holds = np.mean(f) > np.mean(a) and all(abs(one - 0.9) < 0.01 for one in a)
    return (
        YES if holds else PARTLY,
        f"coverage of DP-SCP-F is {spread(f)}, of DP-SCP-A {spread(a)}",
    )


def _sharper(rows: Sequence[Row]) -> tuple[str, str]:
    found = _by_method(rows, "mean size")
    ratios = np.array(found["scp-a"]) / np.array(found["split"])
    share = float(np.mean(ratios < 1))
    return (
        YES if share == 1 else NO if share == 0 else PARTLY,
        f"DP-SCP-A's mean size is {spread(ratios, 2)} times DP-Split's, smaller in {share:.0%} of "
        "the cells",
    )


def _stable(rows: Sequence[Row]) -> tuple[str, str]:
    last = {row["epsilon"]: row for row in rows if row["step"] == STEPS}
    gaps = [row["stability gap"] for row in last.values()]
    errors = [last[epsilon]["estimation error"] for epsilon in sorted(last)]
    holds = max(gaps) < 0.1 * min(errors) and errors == sorted(errors, reverse=True)
    return (
        YES if holds else PARTLY,
        f"after {STEPS} steps the error is {' / '.join(f'{one:.2f}' for one in errors)} at epsilon "
        f"{' / '.join(f'{one:g}' for one in sorted(last))}, the gap {spread(gaps)}",
    )


NEAR = Statement(
    where="SCP section S6.3.2",
    says="All methods stay near 0.9; DP-SCP-F is the most conservative",
    answer=_near_target,
)
SHARPER = Statement(
    where="SCP sections 6.2 and S6.3.2",
    says="DP-SCP-A has smaller sets, or shorter intervals, than DP-Split",
    answer=_sharper,
)
SAME_MECHANISMS = (
    "Budgets are composed by privacy loss distributions and the offset is that of discrete noise, "
    "so the search is less noisy and DP-SCP-F covers less, closer to the target.",
    "Features are scaled by public numbers; the paper standardises with statistics of the training "
    "records, which ship with the model without noise.",
)


def sets_target(table: str, epsilon: float) -> Target:
    return Target(
        name=f"scp-table-{table.lower()}",
        of=f"SCP Table {table}",
        shows=f"five made-up classes, epsilon {epsilon:g}: coverage and set size by n",
        takes="6 min",
        trials=3,
        trained=True,
        run=partial(sets, epsilon=epsilon),
        plot=Plot(x="n", y=("coverage", "mean size", "singletons"), lines=METHODS),
        facts=Facts(
            where=f"SCP Table {table}, 30 trials", by=("n", "epsilon", "method"), numbers=SETS
        ),
        claims=(NEAR, SHARPER),
        differences=(
            "The paper's pool is one draw of make_classification and ours another draw of our own "
            "generator, so sizes differ by the difficulty of the problem.",
            "The paper takes 50 epochs in batches of 32 at rate 1e-3 and names no optimizer; we "
            "take 50 epochs in batches of 256 with Adam at 8e-3, an eighth of the steps, which "
            "brings DP-Split closer.",
            "The paper averages 30 trials. Ten trials of the cells of n = 10,000 and 30,000, by "
            "the same code and seeds, are in docs/full-data.md.",
            *SAME_MECHANISMS,
        ),
    )


TARGETS = (
    Target(
        name="scp-table-2",
        of="SCP Table 2",
        shows="California housing: coverage and width of intervals",
        takes="25 min",
        trials=3,
        trained=True,
        needs=(CALIFORNIA,),
        instead="scp-table-2-line",
        run=housing,
        plot=Plot(x="epsilon", y=("coverage", "mean size"), lines=METHODS),
        facts=Facts(
            where="SCP Table 2, 30 trials; split CP and naive reuse have no epsilon",
            by=("n", "epsilon", "method"),
            numbers=HOUSING,
        ),
        claims=(SHARPER,),
        differences=(
            "The paper takes 50 epochs in batches of 128 at rate 1e-3; we take 50 epochs in "
            "batches of 512 with Adam at 4e-3, a quarter of the steps.",
            "Targets are scaled by a public bound of $500,000 and not by their own mean and "
            "deviation, so a unit of the loss is another one under clipping.",
            *SAME_MECHANISMS,
        ),
    ),
    Target(
        name="scp-table-2-line",
        of="SCP Table 2",
        shows="stand-in on a made-up line: coverage and width of intervals",
        takes="15 min",
        trials=2,
        trained=True,
        stands_in=True,
        run=made_up_line,
        plot=Plot(x="epsilon", y=("coverage", "mean size"), lines=METHODS),
        claims=(SHARPER,),
        differences=(
            "A stand-in: 10,000 made-up records with five features and a linear truth, so widths "
            "are in other units and nothing of the table can be compared but the order.",
        ),
    ),
    sets_target("S7", 0.5),
    sets_target("S8", 1.0),
    sets_target("S9", 2.0),
    Target(
        name="scp-figure-s1",
        of="SCP Figure S1",
        shows="distance of DP-SGD to the truth, and of two coupled runs to each other",
        takes="10 s",
        trials=RUNS,
        run=coupled,
        plot=Plot(x="step", y=("estimation error", "stability gap"), lines="epsilon", panels=None),
        claims=(
            Statement(
                where="SCP section S6.3.1",
                says="The estimation error falls as epsilon grows; the stability gap remains "
                "essentially near zero at every epsilon",
                answer=_stable,
            ),
        ),
        differences=(
            "The paper states neither rate, batch, clip nor steps of this training; ours are "
            f"{STEPS} steps at rate {RATE:g}, sampling rate {SAMPLING_RATE:g} and clip {CLIP:g}, "
            "divided by a public batch size.",
        ),
    ),
)
