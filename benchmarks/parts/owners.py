"""Owners: one pooled threshold or one for every owner; owners that leave; what each certifies.

python benchmarks/parts/owners.py [--campaigns 200] prints the tables of docs/local-methods.md.
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
from scipy.special import betaincinv

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.labels import procedure as labels
from confide.aggregator.procedures.ladder import public_ladder
from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import auto
from confide.protocol.exact.sampling import SeededEntropy
from confide.simulation.driver import BitUsers, LabelUsers, drive
from tests.support.owners.leaving import Leaving, planned_coverage

ALPHA = DELTA = 0.1
# Twenty owners, four of them harder: their scores are square roots of uniform ones, so that
# coverage at q is q^2 there and q elsewhere.
OWNERS, HARDER = 20, 4
K = 10
# Twenty walks a campaign take seconds on the usual ladder of 800 rungs.
LADDER = public_ladder(100)


def of_owners(n: int, seed: int) -> tuple[Any, Any]:
    """Scores of true labels, and the owner of each."""
    rng = np.random.default_rng([seed, n])
    owners, u = rng.integers(0, OWNERS, n), rng.random(n)
    return np.where(owners < HARDER, np.sqrt(u), u), owners


def tried(cell: dict[str, Any], seed: int) -> dict[str, float]:
    """A campaign: whether it fails, its thresholds, and the mean size of sets.

    The other labels of a record have uniform scores, so that a threshold q leaves 9 q of them.
    """
    method, variant, n, epsilon = (cell[name] for name in ("method", "variant", "n", "epsilon"))
    scores, owners = of_owners(n, seed)
    entropy = SeededEntropy("owners", method, variant, n, seed)
    asked: dict[str, Any] = {"variant": variant, "alpha": ALPHA, "delta": DELTA}
    if method == "bits":
        channel = Bit(epsilon=epsilon)
        made: Any = bits.procedure(n=n, channel=channel, **asked)
        found: LocalCertificate = drive(made, BitUsers(scores, entropy, owners))
    else:
        rng = np.random.default_rng([seed, n, 1])
        every = rng.random((n, K))
        truth = rng.integers(0, K, n)
        every[np.arange(n), truth] = scores
        made = labels.procedure(channel=auto(k=K, epsilon=epsilon), ladder=LADDER, **asked)
        found = drive(made, LabelUsers(every, truth, entropy, owners))
    own = [one.threshold for one in found.strata] if variant == "per-owner" else []
    thresholds = np.array(own or [found.threshold] * OWNERS)
    hard = np.arange(OWNERS) < HARDER
    coverage = np.where(hard, thresholds**2, thresholds)
    return {
        "misses": float((coverage < 1 - ALPHA).sum()),
        "mixture": float(coverage.mean()),
        "hardest": float(coverage[hard].mean()),
        "size": float((coverage + (K - 1) * thresholds).mean()),
        "trivial": float((thresholds >= 1).mean()),
    }


def left(cell: dict[str, Any], seed: int) -> dict[str, float]:
    """A campaign that an owner leaves: whether the planned mixture is missed, and how it ends."""
    n, planned = cell["n"], cell["mixture"] == "planned"
    made = bits.procedure(
        variant="certified",
        n=n,
        channel=Bit(epsilon=cell["epsilon"]),
        alpha=ALPHA,
        delta=DELTA,
        **({"mixture": b"benchmark" + bytes([seed % 256])} if planned else {}),
    )
    found: LocalCertificate = drive(made, Leaving(n, rounds=cell["rounds"], seed=seed))
    return {
        "misses": float(planned_coverage(found.threshold) < 1 - ALPHA),
        "trivial": float(found.threshold >= 1),
        "excess": planned_coverage(found.threshold) - (1 - ALPHA),
    }


def interval(count: int, of: int) -> tuple[float, float]:
    """Clopper and Pearson's limits for a rate, at 95 %."""
    low = 0.0 if not count else float(betaincinv(count, of - count + 1, 0.025))
    return low, 1.0 if count == of else float(betaincinv(count + 1, of - count, 0.975))


Runner = Callable[[dict[str, Any], int], dict[str, float]]


def measured(cell: dict[str, Any], run: Runner, campaigns: int, pool: Any) -> dict[str, Any]:
    """The cell with what its campaigns show."""
    rows = pool.map(partial(run, cell), range(campaigns), chunksize=4)
    failed = sum(row["misses"] > 0 for row in rows)
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {**cell, **means, "campaigns": campaigns, "failed": failed} | {
        "limits": interval(failed, campaigns)
    }


def cells_of_owners() -> list[dict[str, Any]]:
    return [
        {"method": method, "variant": variant, "n": 40_000, "epsilon": 4.0}
        for variant in ("for-every-owner", "certified", "per-owner")
        for method in ("bits", "labels")
    ]


def share(cell: dict[str, Any], campaigns: int) -> int:
    """Campaigns with a threshold for each owner have twenty tests each, so fewer will do."""
    return campaigns // 4 if cell["variant"] == "per-owner" else campaigns


def cells_of_leaving() -> list[dict[str, Any]]:
    # The search has two rounds.
    return [
        {"n": 20_000, "epsilon": 4.0, "rounds": rounds, "mixture": mixture}
        for rounds in (3, 2, 99)
        for mixture in ("as-answered", "planned")
    ]


LEFT = {99: "nobody", 3: "after the first stage", 2: "before certification"}


OWNERS_HEAD = """\
| campaign | campaigns | with an owner below 90 % | its limits | such owners of 20 | coverage: \
mixture | harder owners | mean set size | trivial |
|---|---|---|---|---|---|---|---|---|"""
LEAVING_HEAD = """\
| who leaves | mixture | planned mixture below 90 % | its limits | trivial | mean excess |
|---|---|---|---|---|---|"""


def of_owner_cell(row: dict[str, Any]) -> str:
    low, high = row["limits"]
    return (
        f"| `{row['method']}:{row['variant']}` | {row['campaigns']} | "
        f"{row['failed'] / row['campaigns']:.1%} | {low:.1%} to {high:.1%} | {row['misses']:.2f} | "
        f"{row['mixture']:.3f} | {row['hardest']:.3f} | {row['size']:.2f} | {row['trivial']:.1%} |"
    )


def of_leaving_cell(row: dict[str, Any]) -> str:
    low, high = row["limits"]
    return (
        f"| {LEFT[row['rounds']]} | {row['mixture']} | "
        f"{row['failed'] / row['campaigns']:.1%} | {low:.1%} to {high:.1%} | "
        f"{row['trivial']:.1%} | {row['excess']:.4f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=200)
    options = parser.parse_args()
    with multiprocessing.Pool(min(2, os.cpu_count() or 1)) as pool:
        print(LEAVING_HEAD)
        for cell in cells_of_leaving():
            print(of_leaving_cell(measured(cell, left, options.campaigns, pool)), flush=True)
        print("\n" + OWNERS_HEAD)
        for cell in cells_of_owners():
            found = measured(cell, tried, share(cell, options.campaigns), pool)
            print(of_owner_cell(found), flush=True)


if __name__ == "__main__":
    main()
