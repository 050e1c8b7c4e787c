"""How often campaigns cover less than their certificates say.

Every local method and score is run, in process and over the wire.

Run with the project's environment: `python benchmarks/local/coverage.py [--campaigns 100] [--n N]
[--epsilon 4] [--markdown] [--json FILE]`. Populations are those of
`tests/support/truth/populations.py`, on which coverage is a finite sum, so that a failure is a
fact and not an estimate; with `--hard` every certified variant runs with HPS on six on which tests
of coverage have gone wrong. A certificate may fail with probability delta = 0.1. The rate of
failures of every cell stands with its Clopper-Pearson limits, each wrong with probability 1e-5; a
lower limit above delta ends the script with status 1, which happens to correct methods with
probability 0.004 at most.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import beta

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.local.local_tables import failure_markdown, hard_markdown
from confide.protocol.certificate import Certificate
from confide.protocol.scores.registry import SCORES
from tests.support.truth.coverage import CERTIFIED, METHODS, PATHS, Cell
from tests.support.truth.populations import HARD, POPULATIONS

DELTA = 0.1
DOUBT = 1e-5


def limits(failures: int, campaigns: int) -> tuple[float, float]:
    """Limits of the rate of failures, each wrong with probability at most `DOUBT`.

    Clopper & Pearson 1934.
    """
    low = float(beta.ppf(DOUBT, failures, campaigns - failures + 1)) if failures else 0.0
    high = (
        float(beta.isf(DOUBT, failures + 1, campaigns - failures)) if failures < campaigns else 1.0
    )
    return low, high


def trivial(found: Certificate) -> bool:
    """Whether no part of the records has a threshold below 1."""
    own = () if found.together else found.strata
    return min([one.threshold for one in own] or [found.threshold]) >= 1


def measure(work: tuple[Cell, int]) -> dict[str, Any]:
    """The failures of one cell."""
    cell, campaigns = work
    start = time.monotonic()
    found = [cell.certificate(i) for i in range(campaigns)]
    failures = sum(map(cell.fails, found))
    low, high = limits(failures, campaigns)
    return {
        "method": str(cell.method),
        "score": cell.score,
        "population": cell.population,
        "path": cell.path,
        "n": cell.n,
        "epsilon": cell.epsilon,
        "campaigns": campaigns,
        "failures": failures,
        "trivial": sum(map(trivial, found)) / campaigns,
        "rate": failures / campaigns,
        "low": low,
        "high": high,
        "seconds": time.monotonic() - start,
    }


def shown(rows: list[dict[str, Any]]) -> Table:
    """One row for each method and path, one column for each score.

    A cell has the highest rate of the populations, marked where it is surely above delta.
    """
    table = Table(title="rate of failures, highest of the populations", title_justify="left")
    scores = list(dict.fromkeys(row["score"] for row in rows))
    for heading in ("method", "path", *scores, "all"):
        table.add_column(
            heading, no_wrap=True, justify="left" if heading in ("method", "path") else "right"
        )
    for method, path in dict.fromkeys((row["method"], row["path"]) for row in rows):
        own = [row for row in rows if (row["method"], row["path"]) == (method, path)]
        worst = [
            max((row for row in own if row["score"] == score), key=lambda row: row["rate"])
            for score in scores
        ]
        total, failed = sum(row["campaigns"] for row in own), sum(row["failures"] for row in own)
        cells = [f"{row['rate']:.2f}{'*' if row['low'] > DELTA else ''}" for row in worst]
        table.add_row(method, path, *cells, f"{failed / total:.3f}")
    return table


def finished(works: list[tuple[Cell, int]], workers: int) -> Iterable[dict[str, Any]]:
    """Rows as they are finished, with a progress bar on a terminal and lines elsewhere."""
    terminal, told = sys.stderr.isatty(), time.monotonic()
    with ProcessPoolExecutor(workers) as pool:
        found, console = pool.map(measure, works), Console(stderr=True)
        rows = track(
            found, "cells", total=len(works), transient=True, console=console, disable=not terminal
        )
        for done, row in enumerate(rows, start=1):
            if not terminal and time.monotonic() - told >= 30:
                told = time.monotonic()
                print(f"{done} of {len(works)} cells", file=sys.stderr, flush=True)
            yield row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=100, help="campaigns a cell (default 100)")
    parser.add_argument(
        "--n", type=int, help="records a campaign (default 1000, for bits:published-star 6000)"
    )
    parser.add_argument(
        "--epsilon",
        type=float,
        default=4.0,
        help="the local epsilon (default 4, which is also the most)",
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="processes (default: one a core)"
    )
    parser.add_argument(
        "--only", default="", help="methods whose name starts so, such as labels:certified"
    )
    parser.add_argument(
        "--hard", action="store_true", help="every certified variant on hard populations, with HPS"
    )
    parser.add_argument("--path", choices=PATHS, help="only this path")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument(
        "--markdown", action="store_true", help="print the table of docs/local-methods.md"
    )
    given = parser.parse_args()
    if (
        given.campaigns < 1
        or (given.n or 100) < 100
        or given.workers < 1
        or not 0 < given.epsilon <= 4
    ):
        parser.error(
            "campaigns and workers must be at least 1, n at least 100, epsilon above 0 and at most "
            "4"
        )
    works = [
        (
            Cell(
                method,
                score,
                population,
                path,
                n=given.n or method.records,
                epsilon=given.epsilon,
                delta=DELTA,
            ),
            given.campaigns,
        )
        for method, score, population, path in product(
            *((CERTIFIED, ["hps"], HARD) if given.hard else (METHODS, SCORES, POPULATIONS)), PATHS
        )
        if str(method).startswith(given.only) and given.path in (None, path)
    ]
    if not works:
        parser.error(
            f"--only {given.only}: accepted is the start of {', '.join(map(str, METHODS))}"
        )
    rows = list(finished(works, given.workers))
    if given.markdown:
        print(hard_markdown(rows) if given.hard else failure_markdown(rows))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(shown(rows))
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")
    above = [row for row in rows if row["low"] > DELTA]
    for row in above:
        print(
            f"above delta: {row['method']}, {row['score']}, {row['population']}, {row['path']}: "
            f"{row['failures']} of {row['campaigns']} campaigns fail, a rate of at least "
            f"{row['low']:.3f}"
        )
    print(
        f"{len(rows)} cells of {given.campaigns} campaigns, highest lower limit "
        f"{max(row['low'] for row in rows):.3f}"
    )
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
