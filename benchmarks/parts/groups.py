"""Four classes or groups of unequal size and difficulty: one threshold for all, or one for each.

python benchmarks/parts/groups.py [--campaigns 200] prints the tables of docs/local-methods.md
(local) and docs/central.md (counts).
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.parts.owners import interval
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.certificate import Certificate
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.plan import Plan
from confide.simulation.driver import BitUsers, CountingOwner, LabelUsers, NoisingOwners, drive
from confide.simulation.planning import plan

ALPHA = DELTA = 0.1
N, OWNERS, K = 20_000, 10, 10
# Coverage of a part at threshold q is q, q^2, q^3 and q^4; the last part is the smallest.
SHARES = (0.4, 0.3, 0.2, 0.1)
NAMES = ("A", "B", "C", "D")
POWERS = np.arange(1, len(SHARES) + 1)
GROUPS: dict[str, Any] = {"group_column": "ward", "groups": list(NAMES)}


def population(seed: int) -> tuple[Any, Any]:
    """Scores of true labels, and the part of each record."""
    rng = np.random.default_rng([seed, 8])
    parts = rng.choice(len(SHARES), N, p=SHARES)
    return rng.random(N) ** (1 / POWERS[parts]), parts


def users(asked: Plan, seed: int) -> Callable[[Any], Any]:
    """Who answers the plan's queries: every record, or owners that count theirs."""
    scores, parts = population(seed)
    entropy, wards = SeededEntropy("groups", asked.method, seed), np.array(NAMES)[parts]
    if asked.method == "bits":
        return BitUsers(scores, entropy, wards)
    if asked.method == "labels":
        rng = np.random.default_rng([seed, 9])
        every, truth = rng.random((N, K)), rng.integers(0, K, N)
        every[np.arange(N), truth] = scores
        return LabelUsers(every, truth, entropy, wards)
    counting = CountingOwner(scores, parts, wards)
    terms = CentralTerms.of(asked.terms)
    if terms.shows_exact_counts:
        return counting
    places = None if terms.key is None else terms.key.places(counting)
    return NoisingOwners(scores, OWNERS, entropy, places)


def tried(cell: dict[str, Any], seed: int) -> list[float]:
    """The coverage of every part in a campaign."""
    given = dict(cell)
    campaign = given.pop("campaign")
    made = plan(campaign, records=N, labels=given.pop("labels", K), alpha=ALPHA, **given)
    found: Certificate = drive(plan_procedure(made, draw_afresh), users(made, seed))
    each = [] if found.together else [one.threshold for one in found.strata]
    return [float(q) for q in np.array(each or [found.threshold] * len(POWERS)) ** POWERS]


def measured(cell: dict[str, Any], campaigns: int, pool: Any) -> dict[str, Any]:
    """The cell with what its campaigns show."""
    rows = np.array(pool.map(partial(tried, cell), range(campaigns), chunksize=4))
    below = (rows < 1 - ALPHA).sum(axis=0)
    worst = int(below.argmax())
    return cell | {
        "campaigns": campaigns,
        "below": below.tolist(),
        "worst": (NAMES[worst], int(below[worst])),
        "limits": interval(int(below[worst]), campaigns),
        "coverage": rows.mean(axis=0).tolist(),
        "deviation": (rows.std(axis=0) / np.sqrt(campaigns)).tolist(),
        "trivial": float((rows >= 1).mean()),
    }


LOCAL: list[dict[str, Any]] = [
    {"campaign": "labels:certified"},
    {"campaign": "labels:per-group", **GROUPS},
    {"campaign": "labels:for-every-group", **GROUPS},
    {"campaign": "bits:certified"},
    {"campaign": "bits:per-group", **GROUPS},
    {"campaign": "bits:for-every-group", **GROUPS},
]
TRUSTED = {"campaign": "central:trusted", "labels": len(NAMES), "epsilon": 1.0}
NOISED = {"campaign": "central:owner-noised", "labels": len(NAMES), "epsilon": 1.0}
COUNTS: list[dict[str, Any]] = [
    {**how, **by}
    for how in (TRUSTED, NOISED)
    for by in ({}, {"by": "class"}, {"by": "group", **GROUPS})
]


def line(row: dict[str, Any]) -> str:
    by = row.get("by")
    name = f"`{row['campaign']}`" + (f" by {by}" if by else "")
    part, count = row["worst"]
    low, high = row["limits"]
    coverage = " | ".join(
        f"{mean:.3f} ({error:.4f})"
        for mean, error in zip(row["coverage"], row["deviation"], strict=True)
    )
    return (
        f"| {name} | {coverage} | {part}: {count} of {row['campaigns']} | {low:.1%} to "
        f"{high:.1%} | {row['trivial']:.1%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--only", choices=("local", "counts"))
    given = parser.parse_args()
    if given.campaigns < 1:
        parser.error(f"--campaigns is {given.campaigns}; at least 1 is needed")
    tables = {"local": [one | {"epsilon": 4.0} for one in LOCAL], "counts": COUNTS}
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        for name, cells in tables.items():
            if given.only in (None, name):
                print(f"| campaign | {' | '.join(NAMES)} | most below 90 % | limits | trivial |")
                print("|---" * 8 + "|")
                for cell in cells:
                    print(line(measured(cell, given.campaigns, pool)), flush=True)
                print()


if __name__ == "__main__":
    main()
