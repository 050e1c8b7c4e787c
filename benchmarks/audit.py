"""An audit of the noise of training: lower bounds on epsilon from canaries, next to the claim.

Run `python benchmarks/audit.py [--runs 200000] [--epsilon 1 4] [--json FILE]`, about five minutes
for each epsilon. Every run takes one step of the closed form on a batch with one of two canaries
and lets the auditor guess which (`confide.simulation.attackers.estimator`). A row is a noise: the
one that the claim asks for, and half of it, planted. `by definition` assumes nothing but
independent runs; `Gaussian` assumes the shape of the noise. A bound is above the true epsilon with
probability at most --false-alarm. The command ends with status 1 if a bound of the stated noise is
above the claim.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import os_entropy
from confide.simulation.attackers.canaries import (
    DELTA,
    canaries,
    claimed_terms,
    closed_form,
    noisy_step,
)
from confide.simulation.attackers.estimator import by_definition, by_gaussian, watch

Row = dict[str, Any]


def audit(epsilon: float, noise: float, *, runs: int, false_alarm: float) -> Row:
    """Both bounds for a step that claims epsilon and draws this part of its noise."""
    terms = claimed_terms(epsilon)
    step = noisy_step(terms, closed_form(terms), os_entropy, noise=noise)
    statistics = watch(step, canaries(), runs=runs, seed=0) / CLIP_UNITS
    # Where half of the noise makes a canary e^(1.2 epsilon) times as likely as the other: fixed
    # before any run, and about the best for 200,000 of them.
    threshold = 1.2 * epsilon * terms.noise_multiplier**2 / 8
    return {
        "claim": epsilon,
        "delta": DELTA,
        "noise": noise,
        "by definition": by_definition(
            statistics, threshold=threshold, delta=DELTA, false_alarm=false_alarm
        ),
        "Gaussian": by_gaussian(statistics, delta=DELTA, false_alarm=false_alarm),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200_000, help="of each noise (default 200,000)")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0], help="claims")
    parser.add_argument("--false-alarm", type=float, default=1e-4, help="default 1e-4")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if arguments.runs < 1 or not 0 < arguments.false_alarm < 1:
        parser.error("accepted are at least 1 run and a false alarm between 0 and 1")
    given = {"runs": arguments.runs, "false_alarm": arguments.false_alarm}
    rows = [audit(claim, noise, **given) for claim in arguments.epsilon for noise in (1.0, 0.5)]
    table = Table(title=f"{arguments.runs:,} runs", title_justify="left")
    for heading in rows[0]:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(f"{value:.4g}" for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(
        any(
            max(row["by definition"], row["Gaussian"]) > row["claim"]
            for row in rows
            if row["noise"] == 1.0
        )
    )


if __name__ == "__main__":
    main()
