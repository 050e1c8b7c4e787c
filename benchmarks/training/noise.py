"""What exact discrete Gaussian noise costs, next to its entropy and to floating-point noise.

Run with the project's environment: `python benchmarks/training/noise.py [--sigma 1000000] [--rounds
15] [--json FILE]`. All ways take their words from the operating system, in one thread. The floor is
one 64-bit word a draw and one pass of numpy over it. Floating-point noise inverts the normal
distribution at such words (`scipy.special.ndtri`); its bits tell more than its law allows, so it is
here to be compared with. The claims are ratios within one run: rounds alternate between the ways,
and the median round counts.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import ndtri

from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.sampling import os_entropy, words

# A million at once; the weights of one small network, as one step of its training draws them; and a
# single count.
SIZES = (1_000_000, 2_778, 1)


def ways(sigma: int) -> dict[str, Callable[[int], Any]]:
    """Functions that draw so many values."""
    variance = Fraction(sigma) ** 2
    return {
        "discrete": lambda count: discrete_gaussian(variance, count, os_entropy),
        "floor": lambda count: words(count, 64, os_entropy) * 2.0**-64,
        "float": lambda count: (
            sigma * ndtri(((words(count, 64, os_entropy) >> np.uint64(11)) + 0.5) * 2.0**-53)
        ),
    }


def measure(count: int, *, sigma: int, rounds: int) -> dict[str, float]:
    """Median microseconds a draw, for each way; short calls are repeated within a round."""
    drawing, repeats = ways(sigma), max(1, 50_000 // count if count > 1 else 1000)
    taken: dict[str, list[float]] = {way: [] for way in drawing}
    for round_ in range(rounds + 1):
        for way, draw in drawing.items():
            started = time.perf_counter()
            for _ in range(repeats):
                draw(count)
            # The first round only warms up.
            if round_:
                taken[way].append(1e6 * (time.perf_counter() - started) / (repeats * count))
    return {way: statistics.median(times) for way, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sigma", type=int, default=1_000_000, help="of the noise (default 1,000,000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=15, help="rounds timed for each way (default 15)"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if not (1 <= arguments.sigma <= 1 << 42 and arguments.rounds >= 1):
        parser.error("sigma must be 1 to 2^42, and rounds at least 1")
    rows: list[dict[str, Any]] = []
    for count in SIZES:
        found = measure(count, sigma=arguments.sigma, rounds=arguments.rounds)
        rows.append(
            {
                "draws a call": count,
                **{f"{way} (us a draw)": value for way, value in found.items()},
                "discrete (ms a call)": found["discrete"] * count / 1000,
                "discrete / floor": found["discrete"] / found["floor"],
                "discrete / float": found["discrete"] / found["float"],
            }
        )
    table = Table(title=f"noise of sigma {arguments.sigma:,}", title_justify="left")
    for heading in rows[0]:
        table.add_column(heading, no_wrap=True, justify="right")
    for row in rows:
        table.add_row(
            *(
                f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
                for value in row.values()
            )
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
