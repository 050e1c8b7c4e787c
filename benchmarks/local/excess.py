"""Certified bits: how often they cover too little, and by how much they cover too much.

Run with the project's environment: `python benchmarks/local/excess.py [--campaigns 200] [--only
violations|excess|slope|rounds] [--variant certified|one-shot] [--json FILE]`. Campaigns are seeded
and drawn at the level of tallies, from the curves of `tests/support/truth/bit_tallies.py` and the
scores of two real classifiers; alpha = delta = 0.1.

Violations stand with Clopper-Pearson limits, each wrong with probability 1e-5; a lower limit above
delta ends the script with status 1. Excess is mean coverage above the target in units of sigma /
sqrt(n), sigma the standard deviation of a debiased bit at the target. In these units no eps-LDP
method can go below 1.33; the column beside is a single test of all records at a threshold placed
with the curve known, which fails into the trivial threshold. `slope` is the excess on uniform
scores if the procedure is told how steep the curve is, and `rounds` where rounds are made for small
owners.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.special import ndtr
from scipy.stats import beta

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.local.local_methods import bit_populations
from benchmarks.markdown import grouped, table
from confide.aggregator.procedures.bits import curve as fitted
from confide.aggregator.procedures.bits import procedure as bits
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bit_rounds import SCHEDULES
from tests.support.truth.bit_tallies import POPULATIONS, Curve, campaign, drawn

ALPHA = DELTA = 0.1
LOWER_BOUND = 1.33
DOUBT = 1e-5
VIOLATIONS = [(3_000, 1.0), (50_000, 4.0)]
ROUNDS = [(20_000, 1.0), (20_000, 4.0)]
EXCESS = [(n, epsilon) for n in (3_000, 50_000, 200_000) for epsilon in (0.5, 1.0, 2.0, 4.0)]

Row = dict[str, Any]


def unit(channel: Bit, n: int) -> float:
    """Sigma / sqrt(n)."""
    rate = float(channel.spill) + float(channel.hit - channel.spill) * (1 - ALPHA)
    return math.sqrt(rate * (1 - rate) / n) / float(channel.hit - channel.spill)


def one_test(most: float) -> dict[str, float]:
    """The least mean excess of one test of all records, placed with the curve known.

    A test that fails costs `most`, the excess of the trivial threshold. Its share of trivial
    campaigns there, and the least that it could have anywhere below that threshold, stand beside.
    """
    excess = np.linspace(0, min(most, 10), 1_001)
    passes = ndtr(excess - 1.2816)
    mean = passes * excess + (1 - passes) * most
    best = int(mean.argmin())
    return {
        "one_test": float(mean[best]),
        "one_test_trivial": float(1 - passes[best]),
        "least_trivial": float(1 - passes[-1]),
    }


def measured(
    name: str,
    curve: Curve,
    *,
    variant: str,
    n: int,
    epsilon: float,
    campaigns: int,
    **own: Any,
) -> Row:
    """Campaigns on one population: violations, trivial ones and the mean excess.

    No two cells share random numbers.
    """
    cell = [*name.encode(), n, round(100 * epsilon)]
    channel = Bit(epsilon=epsilon)
    thresholds = []
    for seed in range(campaigns):
        asked = {"channel": channel, "alpha": ALPHA, "delta": DELTA, **own}
        made = bits.procedure(variant=variant, n=n, **asked)
        certificate = campaign(made, curve, n=n, seed=[seed, *cell])
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
        **one_test(ALPHA / unit(channel, n)),
    }


def excess_curves() -> dict[str, Curve]:
    """Uniform scores, and those of two real classifiers."""
    real = {name: scores for name, scores in bit_populations().items() if "saps" not in name}
    return {
        "uniform": POPULATIONS["uniform"],
        **{name: drawn(scores) for name, scores in real.items()},
    }


def run(curves: dict[str, Curve], cells: list[tuple[int, float]], **asked: Any) -> list[Row]:
    return [
        {"population": name} | measured(name, curve, n=n, epsilon=epsilon, **asked)
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
        trivial = [f"{row[name]:.1%}" for name in ("trivial", "one_test_trivial", "least_trivial")]
        lines.append([*first_cells(row), mean, known, f"{LOWER_BOUND}", ", ".join(trivial)])
    headings = ["scores", "n", "epsilon", "mean excess", "one test, curve known", "lower bound"]
    return table([*headings, "trivial: ours, that test, least of any placement"], lines)


def mean_of(rows: list[Row]) -> str:
    """The mean excess over the cells with n >= 50,000, with its standard error."""
    many = [row for row in rows if row["n"] >= 50_000]
    error = math.hypot(*(row["error"] for row in many)) / len(many)
    return f"{np.mean([row['excess'] for row in many]):.2f} ± {error:.2f}"


def told_slope(campaigns: int) -> list[Row]:
    """The excess on uniform scores, which are exactly logistic, if their slope is known."""
    cells = [(n, epsilon) for n, epsilon in EXCESS if n >= 50_000]
    with patch.multiple(fitted, _SLOPE=1.0, _SLOPE_PRECISION=1e4, _CAUTION=0.0):
        return run(
            {"uniform": POPULATIONS["uniform"]}, cells, variant="certified", campaigns=campaigns
        )


def rounds_lines(rows: list[Row]) -> str:
    """A line for each population: the excess by the smallest owner that rounds are made for."""
    lines = [
        [*first_cells(own[0]), *(f"{row['excess']:.2f} ± {row['error']:.2f}" for row in own)]
        for own in grouped(rows, "population", "epsilon").values()
    ]
    made_for = [
        f"{least} records: {len(found.search) + len(found.stages)} rounds"
        for least, found in SCHEDULES
    ]
    return table(["scores", "n", "epsilon", *made_for], lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=200, help="campaigns a cell")
    parser.add_argument(
        "--only", choices=["violations", "excess", "slope", "rounds"], help="one table"
    )
    parser.add_argument("--variant", choices=["certified", "one-shot"], default="certified")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    if given.campaigns < 1:
        parser.error(f"--campaigns is {given.campaigns}; at least 1 is needed")
    asked = {"variant": given.variant, "campaigns": given.campaigns}
    rows: dict[str, list[Row]] = {}
    if given.only in (None, "violations"):
        rows["violations"] = run(POPULATIONS | excess_curves(), VIOLATIONS, **asked)
        print(violation_lines(rows["violations"]) + "\n")
    if given.only in (None, "excess"):
        rows["excess"] = run(excess_curves(), EXCESS, **asked)
        print(excess_lines(rows["excess"]))
        print(f"\nmean excess at n >= 50,000: {mean_of(rows['excess'])}")
    if given.only in (None, "slope") and given.variant == "certified":
        rows["slope"] = told_slope(given.campaigns)
        print("\n" + excess_lines(rows["slope"]))
        print(f"\nmean excess at n >= 50,000, slope told: {mean_of(rows['slope'])}")
    if given.only in (None, "rounds") and given.variant == "certified":
        curves = {name: POPULATIONS[name] for name in ("uniform", "heavy tail", "five classes")}
        rows["rounds"] = [
            row
            for least, _ in SCHEDULES
            for row in run(curves, ROUNDS, smallest_owner=least, **asked)
        ]
        print("\n" + rounds_lines(rows["rounds"]))
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")
    above = [row for row in rows.get("violations", []) if row["low"] > DELTA]
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
