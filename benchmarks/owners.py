"""Owners: one pooled threshold or one for every owner; owners that leave; what each certifies.

python benchmarks/owners.py [--campaigns 200] [--quick] [--json FILE] prints the tables of
docs/local-methods.md.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import betaincinv

sys.path.insert(0, str(Path(__file__).parent.parent))

from confide.aggregator.procedures import bits, labels
from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import auto
from confide.protocol.exact.sampling import SeededEntropy
from confide.simulation.driver import BitUsers, LabelUsers, drive
from tests.support.leaving import Leaving, planned_coverage

ALPHA = DELTA = 0.1
# Twenty owners, four of them harder: their scores are square roots of uniform ones, so that
# coverage at q is q^2 there and q elsewhere.
OWNERS, HARDER = 20, 4
K = 10


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
        made = labels.procedure(channel=auto(k=K, epsilon=epsilon), **asked)
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


def cells_of_owners(*, quick: bool) -> list[dict[str, Any]]:
    n = 20_000 if quick else 40_000
    return [
        {"method": method, "variant": variant, "n": n, "epsilon": 4.0}
        for method in ("labels", "bits")
        for variant in ("certified", "for-every-owner", "per-owner")
    ]


def share(cell: dict[str, Any], campaigns: int) -> int:
    """Campaigns with a threshold for each owner have twenty tests each, so fewer will do."""
    return campaigns // 4 if cell["variant"] == "per-owner" else campaigns


def cells_of_leaving(*, quick: bool) -> list[dict[str, Any]]:
    # The search has two rounds.
    return [
        {"n": n, "epsilon": 4.0, "rounds": rounds, "mixture": mixture}
        for n in ((20_000,) if quick else (20_000, 50_000))
        for rounds in (99, 3, 2)
        for mixture in ("as-answered", "planned")
    ]


LEFT = {99: "nobody", 3: "after the first stage", 2: "before certification"}


def tables(found: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "| campaign | campaigns | with an owner below 90 % | its limits | such owners of 20 | "
        "coverage: mixture | harder owners | mean set size | trivial |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["owners"]:
        low, high = row["limits"]
        lines.append(
            f"| {row['method']}:{row['variant']} | {row['campaigns']} | "
            f"{row['failed'] / row['campaigns']:.1%} | {low:.1%} to {high:.1%} | "
            f"{row['misses']:.2f} | "
            f"{row['mixture']:.3f} | {row['hardest']:.3f} | {row['size']:.2f} | "
            f"{row['trivial']:.1%} |"
        )
    lines += [
        "",
        "| who leaves | mixture | n | planned mixture below 90 % | its limits | trivial |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["leaving"]:
        low, high = row["limits"]
        lines.append(
            f"| {LEFT[row['rounds']]} | {row['mixture']} | {row['n']:,} | "
            f"{row['failed'] / row['campaigns']:.1%} | {low:.1%} to {high:.1%} | "
            f"{row['trivial']:.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with multiprocessing.Pool(min(2, os.cpu_count() or 1)) as pool:
        found = {
            "leaving": [
                measured(cell, left, options.campaigns, pool)
                for cell in cells_of_leaving(quick=options.quick)
            ],
            "owners": [
                measured(cell, tried, share(cell, options.campaigns), pool)
                for cell in cells_of_owners(quick=options.quick)
            ],
        }
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(tables(found))


if __name__ == "__main__":
    main()
