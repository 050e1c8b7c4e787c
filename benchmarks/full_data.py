"""Training and calibrating on the same records: the tables of docs/full-data.md.

The numbers of the papers stand beside them.

    python benchmarks/full_data.py --json full-data.json              everything, about half an hour
    on one core
    python benchmarks/full_data.py --only memory --trials 50          one table

Three experiments, all seeded. `scp`: five classes, network 16-16 (SCP Tables S7 to S9). `dpcp`: a
location parameter (DPCP section 5.1). `memory`: a learner that remembers as well as privacy allows.
With --json, every trial is written as it ends and found again, so a run may be interrupted and
continued.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from full_data_cells import EXPERIMENTS, Cell, possible
from rich import box
from rich.console import Console
from rich.table import Table

from confide.protocol.terminal import clear_errors
from confide.simulation.evaluate.pipeline_terms import Pipeline
from confide.simulation.evaluate.trials import write_json

# SCP Tables S7 to S9, coverage and set size: (n, epsilon) -> method -> (coverage, size).
PAPER: dict[tuple[int, float], dict[str, tuple[float, float]]] = {
    (10_000, 0.5): {"scp-f": (0.927, 3.243), "scp-a": (0.902, 2.976), "split": (0.904, 3.339)},
    (10_000, 1.0): {"scp-f": (0.917, 2.958), "scp-a": (0.905, 2.828), "split": (0.904, 3.288)},
    (10_000, 2.0): {"scp-f": (0.912, 2.854), "scp-a": (0.905, 2.778), "split": (0.904, 3.266)},
    (30_000, 0.5): {"scp-f": (0.913, 2.279), "scp-a": (0.905, 2.202), "split": (0.907, 2.537)},
    (30_000, 1.0): {"scp-f": (0.908, 2.129), "scp-a": (0.904, 2.091), "split": (0.907, 2.496)},
    (30_000, 2.0): {"scp-f": (0.907, 2.093), "scp-a": (0.904, 2.071), "split": (0.906, 2.485)},
}


def run(
    cells: list[Cell], *, trials: int, rows: list[dict[str, Any]], keep: Callable[[], None]
) -> None:
    """Run the trials that are missing in `rows`.

    Trials of all cells alternate, so that an interrupted run has some of each.
    """
    done = {json.dumps([row["cell"], row["trial"]]) for row in rows}
    prepared: dict[int, list[Pipeline]] = {}
    todo = [
        (n, i)
        for n in range(trials)
        for i in range(len(cells))
        if json.dumps([cells[i].key, n]) not in done
    ]
    started = time.monotonic()
    for count, (number, i) in enumerate(todo):
        left = (time.monotonic() - started) / max(count, 1) * (len(todo) - count) / 60
        if sys.stderr.isatty():
            print(
                f"\r{count}/{len(todo)} trials, about {left:.0f} min left  ",
                end="",
                file=sys.stderr,
                flush=True,
            )
        if i not in prepared:
            prepared[i], refused = possible(cells[i])
            for method, why in refused.items():
                print(f"\n{cells[i].key} {method}: {why}", file=sys.stderr)
        rows += list(cells[i].trial(number, prepared[i]))
        keep()
    if sys.stderr.isatty():
        print(file=sys.stderr)


def summary(cell: Cell, rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """One row for each method: means, and the standard error of the coverage."""
    pipelines, refused = possible(cell)
    for pipeline in pipelines:
        own = [row for row in rows if row["cell"] == cell.key and row["method"] == pipeline.method]
        if not own:
            continue
        coverage = np.array([row["coverage"] for row in own])
        size = np.array([row["mean_size"] for row in own if row["mean_size"] is not None])
        paper = PAPER.get((cell.terms.n, cell.terms.budget.epsilon), {}).get(pipeline.method)
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
            else f"{paper[0]:.3f}, {paper[1]:.3f}",
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
    rows: list[dict[str, Any]] = []
    if arguments.json is not None and arguments.json.exists():
        rows = json.loads(arguments.json.read_text())
    chosen = {
        name: list(make()) for name, make in EXPERIMENTS.items() if arguments.only in (None, name)
    }
    if arguments.records is not None:
        chosen = {
            name: [cell for cell in cells if cell.terms.n == arguments.records]
            for name, cells in chosen.items()
        }

    def keep() -> None:
        if arguments.json is not None:
            write_json(rows, arguments.json)

    with clear_errors():
        try:
            every = [cell for cells in chosen.values() for cell in cells]
            run(every, trials=arguments.trials, rows=rows, keep=keep)
        finally:
            for name, cells in chosen.items():
                (show_markdown if arguments.markdown else show)(name, cells, rows)


if __name__ == "__main__":
    main()
