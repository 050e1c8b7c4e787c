"""Certified bits: how often they cover too little, and by how much they cover too much.

Run with the project's environment: `python benchmarks/excess.py [--campaigns 200] [--only
violations|excess] [--variant certified|one-shot] [--json FILE]`. Campaigns are seeded and drawn at
the level of tallies, from the curves of `tests/support/bit_tallies.py` and the scores of two real
classifiers; alpha = delta = 0.1.

Violations stand with Clopper-Pearson limits, each wrong with probability 1e-5; a lower limit above
delta ends the script with status 1. Excess is mean coverage above the target in units of sigma /
sqrt(n), sigma the standard deviation of a debiased bit at the target. In these units no eps-LDP
method can go below 1.33; the column beside is a single test of all records at a threshold placed
with the curve known, which fails into the trivial threshold.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from local_methods import bit_populations
from local_tables import table
from scipy.special import ndtr
from scipy.stats import beta

sys.path.insert(0, str(Path(__file__).parent.parent))

from confide.aggregator.procedures.bits import procedure as bits
from confide.protocol.channels.bit import Bit
from tests.support.bit_tallies import POPULATIONS, Curve, campaign, drawn

ALPHA = DELTA = 0.1
LOWER_BOUND = 1.33
DOUBT = 1e-5
VIOLATIONS = [(3_000, 1.0), (50_000, 4.0)]
EXCESS = [(n, epsilon) for n in (3_000, 50_000, 200_000) for epsilon in (0.5, 1.0, 2.0, 4.0)]

Row = dict[str, Any]


def unit(channel: Bit, n: int) -> float:
    """Sigma / sqrt(n)."""
    rate = float(channel.spill) + float(channel.hit - channel.spill) * (1 - ALPHA)
    return math.sqrt(rate * (1 - rate) / n) / float(channel.hit - channel.spill)


def one_test(most: float) -> float:
    """The least mean excess of one test of all records, placed with the curve known.

    A test that fails costs `most`, the excess of the trivial threshold.
    """
    excess = np.linspace(0, 10, 1_001)
    passes = ndtr(excess - 1.2816)
    return float((passes * excess + (1 - passes) * most).min())


def measured(curve: Curve, *, variant: str, n: int, epsilon: float, campaigns: int) -> Row:
    """Campaigns on one population: violations, trivial ones and the mean excess."""
    channel = Bit(epsilon=epsilon)
    thresholds = []
    for seed in range(campaigns):
        made = bits.procedure(variant=variant, n=n, channel=channel, alpha=ALPHA, delta=DELTA)
        certificate = campaign(made, curve, channel=channel, n=n, seed=[seed, n])
        thresholds.append(certificate.threshold)
    covered = np.where(np.array(thresholds) >= 1, 1.0, curve(np.array(thresholds)))
    failures = int((covered < 1 - ALPHA - 1e-12).sum())
    excess = (covered - (1 - ALPHA)) / unit(channel, n)
    return {
        "n": n,
        "epsilon": epsilon,
        "campaigns": campaigns,
        "failures": failures,
        "low": float(beta.ppf(DOUBT, failures, campaigns - failures + 1)) if failures else 0.0,
        "high": float(beta.isf(DOUBT, failures + 1, campaigns - failures)),
        "trivial": float(np.mean(np.array(thresholds) >= 1)),
        "excess": float(excess.mean()),
        "error": float(excess.std() / math.sqrt(campaigns)),
        "one_test": one_test(ALPHA / unit(channel, n)),
    }


def excess_curves() -> dict[str, Curve]:
    """Uniform scores, and those of two real classifiers."""
    real = {name: scores for name, scores in bit_populations().items() if "saps" not in name}
    return {
        "uniform": POPULATIONS["uniform"],
        **{name: drawn(scores) for name, scores in real.items()},
    }


def run(
    curves: dict[str, Curve], cells: list[tuple[int, float]], *, variant: str, campaigns: int
) -> list[Row]:
    return [
        {"population": name}
        | measured(curve, variant=variant, n=n, epsilon=epsilon, campaigns=campaigns)
        for n, epsilon in cells
        for name, curve in curves.items()
    ]


def first_cells(row: Row) -> list[str]:
    return [row["population"], f"{row['n']:,}", f"{row['epsilon']:g}"]


def violation_lines(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        rate = f"{row['failures']} of {row['campaigns']}"
        limits = f"{row['low']:.3f}-{row['high']:.3f}"
        lines.append([*first_cells(row), rate, limits, f"{row['trivial']:.1%}"])
    return table(["scores", "n", "epsilon", "below target", "limits", "trivial"], lines)


def excess_lines(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        mean, known = f"{row['excess']:.2f} ± {row['error']:.2f}", f"{row['one_test']:.2f}"
        trivial = f"{row['trivial']:.1%}"
        lines.append([*first_cells(row), mean, known, f"{LOWER_BOUND}", trivial])
    headings = ["scores", "n", "epsilon", "mean excess", "one test, curve known", "lower bound"]
    return table([*headings, "trivial"], lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=200, help="campaigns a cell")
    parser.add_argument("--only", choices=["violations", "excess"], help="one of the two tables")
    parser.add_argument("--variant", choices=["certified", "one-shot"], default="certified")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    if given.campaigns < 1:
        parser.error(f"--campaigns is {given.campaigns}; at least 1 is needed")
    asked = {"variant": given.variant, "campaigns": given.campaigns}
    rows: dict[str, list[Row]] = {}
    if given.only != "excess":
        rows["violations"] = run(POPULATIONS | excess_curves(), VIOLATIONS, **asked)
        print(violation_lines(rows["violations"]) + "\n")
    if given.only != "violations":
        rows["excess"] = run(excess_curves(), EXCESS, **asked)
        print(excess_lines(rows["excess"]))
        many = [row["excess"] for row in rows["excess"] if row["n"] >= 50_000]
        print(f"\nmean excess at n >= 50,000: {np.mean(many):.2f}")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")
    above = [row for row in rows.get("violations", []) if row["low"] > DELTA]
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
