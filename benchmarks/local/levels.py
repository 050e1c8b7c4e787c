"""Averages and bands next to PAC promises: what they exceed the target by, and what bands know.

Run with the project's environment: `python benchmarks/local/levels.py [--campaigns 24] [--only
averages|bands] [--json FILE]`. It prints tables of docs/local-methods.md; some minutes. Campaigns
are seeded and as users plan them; alpha = delta = 0.1.

`averages` is the mean excess of coverage over 0.9, with its standard error, of PAC and marginal
campaigns on the same records, and the share of trivial ones. `bands` is the mean of L(q) at
thresholds of known coverage, and the campaigns in which any level covers too little, with
Clopper-Pearson limits that are each wrong with probability 1e-5. A mean surely below 0.9 (five
standard errors), or a lower limit above delta, ends the script with status 1.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.local.coverage import limits
from benchmarks.local.excess import excess_curves
from benchmarks.local.label_tests import Known, usual
from benchmarks.markdown import grouped, table
from confide import plan
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.certificate import Certificate
from confide.protocol.exact.sampling import SeededEntropy
from confide.simulation.curve_users import CurveUsers
from confide.simulation.driver import LabelUsers, drive
from tests.support.truth.bit_tallies import Curve

Row = dict[str, Any]
# A campaign of so many records, by its number, with the coverage at its thresholds.
Run = Callable[[str, str, int, float, int], Certificate]

TARGET, DELTA = 0.9, 0.1
CELLS = [(3_000, 2.0), (25_000, 0.5), (25_000, 1.0), (25_000, 4.0), (100_000, 1.0)]
BITS = ("bits:certified", "bits:one-shot")
BAND_CELLS = [(25_000, 1.0), (25_000, 4.0)]
SHOWN = (0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)


def planned(campaign: str, guarantee: str, n: int, epsilon: float, labels: int) -> Any:
    asked = {"records": n, "labels": labels, "epsilon": epsilon, "guarantee": guarantee}
    return plan_procedure(plan(campaign, **asked), draw_afresh)


def of_labels(known: Known) -> Run:
    def run(campaign: str, guarantee: str, n: int, epsilon: float, seed: int) -> Certificate:
        scores, truth = known.draw(n, np.random.default_rng([n, seed]))
        users = LabelUsers(scores, truth, SeededEntropy(n, epsilon, seed))
        found: Certificate = drive(planned(campaign, guarantee, n, epsilon, known.labels), users)
        return found

    return run


def of_bits(curve: Curve) -> Run:
    def run(campaign: str, guarantee: str, n: int, epsilon: float, seed: int) -> Certificate:
        users = CurveUsers(n, curve, np.random.default_rng([n, round(100 * epsilon), seed]))
        found: Certificate = drive(planned(campaign, guarantee, n, epsilon, 10), users)
        return found

    return run


def populations() -> Iterator[tuple[str, str, Run, Callable[[float], float]]]:
    """Campaigns on known scores: their name and that of the scores, and coverage at a threshold."""
    for name, known in usual().items():
        yield "labels:certified", name, of_labels(known), known.coverage
    for name, curve in excess_curves().items():
        if name != "quadratic hps":
            for campaign in BITS:
                yield campaign, name, of_bits(curve), _at(curve)


def _at(curve: Curve) -> Callable[[float], float]:
    return lambda q: 1.0 if q >= 1 else float(curve(np.array([q]))[0])


def averages(campaigns: int) -> Iterator[Row]:
    for campaign, name, run, coverage in populations():
        for n, epsilon in CELLS:
            row: Row = {"campaign": campaign, "scores": name, "n": n, "epsilon": epsilon}
            for guarantee in ("PAC", "marginal"):
                made = [run(campaign, guarantee, n, epsilon, i).threshold for i in range(campaigns)]
                excess = np.array([coverage(q) for q in made]) - TARGET
                row[guarantee] = float(excess.mean())
                row[f"{guarantee} error"] = float(excess.std() / np.sqrt(campaigns))
                row[f"{guarantee} trivial"] = float(np.mean(np.array(made) >= 1))
            row["below"] = row["marginal"] < -5 * row["marginal error"]
            yield row


def bands(campaigns: int) -> Iterator[Row]:
    uniform = usual()["uniform"]
    curve = excess_curves()["uniform"]
    runs = {"labels:certified": of_labels(uniform), "bits:one-shot": of_bits(curve)}
    for campaign, run in runs.items():
        for n, epsilon in BAND_CELLS:
            made = [run(campaign, "band", n, epsilon, i).band for i in range(campaigns)]
            # Scores are uniform: the coverage of a threshold is the threshold.
            failures = sum(any(q < at - 1e-9 for at, q in band) for band in made)
            known = [
                float(
                    np.mean([max([at for at, q in band if q <= shown] or [0.0]) for band in made])
                )
                for shown in SHOWN
            ]
            low, high = limits(failures, campaigns)
            row = {"campaign": campaign, "n": n, "epsilon": epsilon, "L": known}
            yield row | {"failures": failures, "campaigns": campaigns, "low": low, "high": high}


def shown(name: str, rows: list[Row]) -> str:
    if name == "bands":
        headings = ["campaign", "n", "epsilon", *(f"F(q) = {at:g}" for at in SHOWN), "fails"]
        lines = [
            [row["campaign"], f"{row['n']:,}", f"{row['epsilon']:g}"]
            + [f"{at:.3f}" for at in row["L"]]
            + [f"{row['failures']} of {row['campaigns']} ({row['low']:.3f} to {row['high']:.3f})"]
            for row in rows
        ]
        return table(headings, lines)
    headings = ["campaign", "scores", "n", "epsilon", "PAC", "marginal", "ratio", "trivial"]
    lines = []
    for row in rows:
        cells = [row["campaign"], row["scores"], f"{row['n']:,}", f"{row['epsilon']:g}"]
        cells += [f"{row[g]:.4f} ± {row[f'{g} error']:.4f}" for g in ("PAC", "marginal")]
        cells += [f"{row['marginal'] / row['PAC']:.2f}"]
        lines.append([*cells, f"{row['PAC trivial']:.0%}, {row['marginal trivial']:.0%}"])
    means = {
        key[0]: sum(row["marginal"] for row in own) / sum(row["PAC"] for row in own)
        for key, own in grouped(rows, "campaign").items()
    }
    said = "; ".join(f"{campaign} {ratio:.2f}" for campaign, ratio in means.items())
    return table(headings, lines) + f"\n\nRatio of the sums over the cells: {said}."


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=24, help="campaigns a cell")
    parser.add_argument("--only", choices=["averages", "bands"], help="one table")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    if given.campaigns < 2:
        parser.error(f"--campaigns is {given.campaigns}; at least 2 are needed")
    found: dict[str, list[Row]] = {}
    for name, rows in {"averages": averages, "bands": bands}.items():
        if given.only in (None, name):
            found[name] = list(rows(given.campaigns))
            print(shown(name, found[name]), end="\n\n", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    every = [row for rows in found.values() for row in rows]
    wrong = [row for row in every if row.get("below") or row.get("low", 0.0) > DELTA]
    for row in wrong:
        print(f"covers too little: {row}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
