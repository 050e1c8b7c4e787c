"""Central quantile mechanisms side by side: the tables of docs/central-mechanisms.md.

Inflation is the private threshold minus the score of rank r = ceil((n + 1) 0.9), the threshold
without privacy, on scores drawn from a Beta(2, 5) law (0.9-quantile 0.51); beta = 1e-3, adjacency
replace-one. Every mechanism has a uniform grid with the number of bins that `automatic_bins` finds
for it. gaussian-search and noisy-midpoint are given rho = epsilon^2/2, the zCDP that epsilon-DP
implies: a weaker promise at the same number. All draws are seeded.
"""

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.quantiles.base import Mechanism
from confide.aggregator.quantiles.histogram import Histogram, conformal_rank, histogram
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.aggregator.quantiles.registry import MECHANISMS, automatic_bins
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import SeededEntropy, os_entropy

Array = NDArray[Any]

LEVEL, BETA = 0.9, 1e-3
SIZES = (500, 1_000, 5_000, 50_000)
EPSILONS = (0.5, 1.0, 2.0, 8.0)
PURE = ("rank-exponential", "above-threshold", "pps", "laplace-counts")
OTHERS = ("gaussian-search", "dpcp", "noisy-midpoint")
BINS = RECORDS = 100_000


def maker(name: str, epsilon: float) -> Callable[[int], Mechanism]:
    budget = (
        {"rho": epsilon**2 / 2}
        if name in ("gaussian-search", "noisy-midpoint")
        else {"epsilon": epsilon}
    )
    kept = {} if name in ("dpcp", "noisy-midpoint") else {"beta": BETA}
    return lambda bins: MECHANISMS[name](bins=bins, **budget, **kept)


def inflation_table(trials: int) -> list[dict[str, Any]]:
    """Mean and standard error of the inflation, and how often the threshold was too low."""
    rows = []
    for n in SIZES:
        rank = conformal_rank(n=n, level=LEVEL)
        rng = np.random.default_rng(n)
        samples = [rng.beta(2, 5, n) for _ in range(trials)]
        plain = np.array([np.partition(scores, rank - 1)[rank - 1] for scores in samples])
        for epsilon in EPSILONS:
            for name in (*PURE, *OTHERS):
                make = maker(name, epsilon)
                mechanism = make(automatic_bins(make, n=n, rank=rank))
                grid, entropy = uniform_grid(mechanism.bins), SeededEntropy(name, n, str(epsilon))
                private = np.array(
                    [
                        mechanism.release(histogram(s, grid), rank, entropy).threshold
                        for s in samples
                    ]
                )
                rows.append(
                    {
                        "n": n,
                        "epsilon": epsilon,
                        "mechanism": name,
                        "certificate": mechanism.certificate,
                        "exact_epsilon": mechanism.privacy.epsilon,
                        "bins": mechanism.bins,
                        "inflation": float(np.mean(private - plain)),
                        "error": float(np.std(private - plain) / trials**0.5),
                        "too_low": float(np.mean(private < plain)),
                        "certified_ranks": mechanism.inflation(n=n, rank=rank),
                    }
                )
                print(f"n={n} epsilon={epsilon} {name}", file=sys.stderr)
    return rows


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """One line for each cell, in thousandths of the score.

    In brackets: the share of thresholds that are too low, of mechanisms that are not certified.
    """
    names = (*PURE, *OTHERS)
    lines = ["| n | epsilon | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    cells = {(row["n"], row["epsilon"], row["mechanism"]): row for row in rows}
    for n in SIZES:
        for epsilon in EPSILONS:
            line = [f"{n:,}", f"{epsilon:g}"]
            least = min(cells[n, epsilon, name]["inflation"] for name in PURE)
            for name in names:
                row = cells[n, epsilon, name]
                text = f"{1000 * row['inflation']:.2f} ± {1000 * row['error']:.2f}"
                text = f"**{text}**" if name in PURE and row["inflation"] == least else text
                line.append(
                    text
                    + (
                        f" ({row['too_low']:.0%} too low)"
                        if row["certificate"] != "certified"
                        else ""
                    )
                )
            lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def printed_pps(
    scores: Array, edges: Array, q: float, epsilon: float, rng: np.random.Generator
) -> float:
    """PPS Algorithm 2 in floats: discretise, compare with every edge, soften, choose."""
    binned = np.sort(edges[np.searchsorted(edges, scores)])
    upto = np.searchsorted(binned, edges, side="right")
    return softened(
        np.searchsorted(binned, edges, side="left"), len(scores) - upto, edges, q, epsilon, rng
    )


def shortened_pps(
    scores: Array, edges: Array, q: float, epsilon: float, rng: np.random.Generator
) -> float:
    """The same without discretising: the scores below an edge are those up to the edge before."""
    upto = np.searchsorted(np.sort(scores), edges, side="right")
    return softened(np.append(0, upto[:-1]), len(scores) - upto, edges, q, epsilon, rng)


def softened(
    below: Array, above: Array, edges: Array, q: float, epsilon: float, rng: np.random.Generator
) -> float:
    exponent = -epsilon / 2 * np.maximum(below / q, above / (1 - q)) / max(1 / q, 1 / (1 - q))
    weights = np.exp(exponent - exponent.max())
    return float(rng.choice(edges, p=weights / weights.sum()))


def seconds(work: Callable[[], object]) -> float:
    """Processor time, which hardly depends on what else the machine does."""
    started = time.process_time()
    work()
    return time.process_time() - started


def peak(work: Callable[[], object]) -> int:
    """Bytes allocated at most during the work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def speed_table(turns: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    scores, grid = rng.random(RECORDS), uniform_grid(BINS)
    rank = conformal_rank(n=RECORDS, level=LEVEL)
    mechanism = RankExponential(bins=BINS, epsilon=1.0, beta=BETA)
    counted = histogram(scores, grid)
    sides: dict[str, Callable[[], object]] = {
        "PPS as printed, in floats, from scores": lambda: printed_pps(
            scores, grid, rank / RECORDS, 1.0, rng
        ),
        "PPS shortened, in floats, from scores": lambda: shortened_pps(
            scores, grid, rank / RECORDS, 1.0, rng
        ),
        "ours, from scores": lambda: mechanism.release(histogram(scores, grid), rank, os_entropy),
        "ours, from a histogram": lambda: mechanism.release(
            Histogram(counted.counts, grid), rank, os_entropy
        ),
    }
    # The sides take turns, so that all meet the same load; the first turn only warms up.
    taken = [{what: seconds(work) for what, work in sides.items()} for _ in range(turns + 1)][1:]
    first = next(iter(sides))
    return [
        {
            "what": what,
            "bytes": peak(work),
            "ratio": min(turn[first] for turn in taken) / min(turn[what] for turn in taken),
            "median_ratio": float(np.median([turn[first] / turn[what] for turn in taken])),
        }
        for what, work in sides.items()
    ]


def speed_markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| release, 100,000 bins and records | peak MB | times as fast, by minima | by turns |",
        "|---|---|---|---|",
    ]
    for row in rows:
        figures = f"{row['bytes'] / 1e6:.1f} | {row['ratio']:.1f} | {row['median_ratio']:.1f}"
        lines.append(f"| {row['what']} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200, help="releases a cell (default 200)")
    parser.add_argument("--speed", action="store_true", help="time a release instead")
    parser.add_argument(
        "--turns", type=int, default=50, help="with --speed: releases timed a line (default 50)"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if arguments.trials < 1 or arguments.turns < 1:
        parser.error("--trials and --turns must be at least 1")
    rows = speed_table(arguments.turns) if arguments.speed else inflation_table(arguments.trials)
    print(speed_markdown(rows) if arguments.speed else as_markdown(rows))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
