"""Training and calibrating on the same records: the tables of docs/full-data.md.

The numbers of the papers stand beside them.

    python benchmarks/central/full_data.py --json full-data.json        everything, half an hour
    python benchmarks/central/full_data.py --only memory --trials 50    one table

Three experiments, all seeded. `scp`: five classes, network 16-16 (SCP Tables S7 to S9). `dpcp`: a
location parameter (DPCP section 5.1). `memory`: a learner that remembers as well as privacy allows.
With --json, every trial is written as it ends and found again, so a run may be interrupted and
continued.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from confide.protocol.commands.terminal import clear_errors
from confide.simulation.reproduce.full_data.cells import EXPERIMENTS, Cell, finish, possible
from confide.simulation.reproduce.full_data.scp_numbers import SETS
from confide.simulation.reproduce.kept_trials import KeptTrials


def summary(cell: Cell, rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """One row for each method: means, and the standard error of the coverage."""
    pipelines, refused = possible(cell)
    for pipeline in pipelines:
        own = [row for row in rows if row["cell"] == cell.key and row["method"] == pipeline.method]
        if not own:
            continue
        coverage = np.array([row["coverage"] for row in own])
        size = np.array([row["mean_size"] for row in own if row["mean_size"] is not None])
        paper = SETS.get((cell.terms.n, cell.terms.budget.epsilon, pipeline.method))
        shown = {
            "n": f"{cell.terms.n:,}",
            "epsilon": f"{cell.terms.budget.epsilon:g}",
            "alpha": f"{cell.terms.alpha:g}",
        }
        if not pipeline.private:
            shown["epsilon"] = "-"
        floor = pipeline.promise.black_box_floor
        yield shown | {
            "method": pipeline.method,
            "certificate": pipeline.promise.certificate,
            "promised": "-" if pipeline.promise.level is None else f"{pipeline.promise.level:.2f}",
            "floor": "-" if floor is None else f"{floor:.3f}",
            "coverage": f"{coverage.mean():.3f} ({coverage.std():.3f})",
            "± s.e.": f"{coverage.std() / np.sqrt(max(1, len(coverage) - 1)):.3f}",
            "size": f"{size.mean():.3f} ({size.std():.3f})" if size.size else "-",
            "trivial": f"{np.mean([row['trivial'] for row in own]):.0%}",
            "paper": "-"
            if cell.experiment != "scp" or paper is None
            else f"{paper['coverage']:.3f}, {paper['mean size']:.3f}",
        }
    for method in refused:
        yield {
            "n": f"{cell.terms.n:,}",
            "epsilon": f"{cell.terms.budget.epsilon:g}",
            "alpha": f"{cell.terms.alpha:g}",
            "method": method,
            "certificate": "infeasible",
            "promised": "-",
            "floor": "-",
            "coverage": "-",
            "± s.e.": "-",
            "size": "-",
            "trivial": "-",
            "paper": "-",
        }


def show(experiment: str, cells: list[Cell], rows: list[dict[str, Any]]) -> None:
    lines = [line for cell in cells for line in summary(cell, rows)]
    if not lines:
        return
    table = Table(title=experiment, box=box.SIMPLE_HEAD)
    for heading in lines[0]:
        table.add_column(heading, no_wrap=True)
    for line in lines:
        table.add_row(*line.values())
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def show_markdown(experiment: str, cells: list[Cell], rows: list[dict[str, Any]]) -> None:
    """One row a cell and one column a method: coverage, size, and the paper's."""
    methods = list(dict.fromkeys(method for cell in cells for method in cell.methods))
    print(
        f"\n{experiment}\n\n| n | epsilon | alpha | {' | '.join(methods)} "
        f"|\n|---|---|---|{'---|' * len(methods)}"
    )
    for cell in cells:
        found = {line["method"]: line for line in summary(cell, rows)}
        print(
            f"| {cell.terms.n:,} | {cell.terms.budget.epsilon:g} | {cell.terms.alpha:g} |", end=""
        )
        for method in methods:
            line = found.get(method)
            print(f" {'' if line is None else _short(line)} |", end="")
        print()


def _short(line: dict[str, str]) -> str:
    if line["certificate"] == "infeasible":
        return "infeasible"
    shown = f"{line['coverage'].split(' ')[0]}, {line['size'].split(' ')[0]}"
    if line["trivial"] != "0%":
        shown = "trivial" if line["trivial"] == "100%" else f"{shown}, {line['trivial']} trivial"
    return shown if line["paper"] == "-" else f"{shown} ({line['paper']})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trials", type=int, default=10, help="repetitions of each cell (default 10)"
    )
    parser.add_argument("--only", choices=list(EXPERIMENTS), help="one of the experiments")
    parser.add_argument("--records", type=int, help="only the cells of this n")
    parser.add_argument(
        "--json", type=Path, help="keep every trial in this file, and continue from it"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print the tables of the page, a row a cell"
    )
    arguments = parser.parse_args()
    if arguments.trials < 1:
        parser.error(f"--trials is {arguments.trials}; at least 1 is needed")
    torch.set_num_threads(1)
    chosen = {
        name: list(make()) for name, make in EXPERIMENTS.items() if arguments.only in (None, name)
    }
    if arguments.records is not None:
        chosen = {
            name: [cell for cell in cells if cell.terms.n == arguments.records]
            for name, cells in chosen.items()
        }

    with clear_errors():
        kept = KeptTrials(arguments.json)
        try:
            finish([cell for cells in chosen.values() for cell in cells], kept, arguments.trials)
        finally:
            for name, cells in chosen.items():
                (show_markdown if arguments.markdown else show)(name, cells, kept.rows)


if __name__ == "__main__":
    main()
