"""Central quantile mechanisms side by side: the tables behind the claims in docs/central-mechanisms.md.

Inflation is the private threshold minus the score of rank r = ceil((n + 1) 0.9), the threshold without privacy, on the
true-label HPS scores of the embedded model, drawn with replacement; beta = 1e-3, adjacency replace-one. Every mechanism has
a uniform grid with the number of bins that `automatic_bins` finds for it. gaussian-search and noisy-midpoint are given
rho = epsilon^2/2, the zCDP that epsilon-DP implies: a weaker promise at the same number. All draws are seeded.
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

from aggregator.quantiles.histogram import conformal_rank, histogram, uniform_grid
from aggregator.quantiles.mechanism import Mechanism
from aggregator.quantiles.mechanisms import MECHANISMS, automatic_bins
from aggregator.quantiles.rank_exponential import RankExponential
from protocol.embedded import predictions
from protocol.sampling import SeededEntropy, os_entropy
from protocol.scores import SCORES, true_scores

Array = NDArray[Any]

LEVEL, BETA = 0.9, 1e-3
SIZES = (500, 1_000, 5_000, 50_000)
EPSILONS = (0.5, 1.0, 2.0, 8.0)
PURE = ("rank-exponential", "above-threshold", "pps", "laplace-counts")
OTHERS = ("gaussian-search", "dpcp", "noisy-midpoint")
BINS = RECORDS = 100_000


def maker(name: str, epsilon: float) -> Callable[[int], Mechanism]:
    budget = {"rho": epsilon**2 / 2} if name in ("gaussian-search", "noisy-midpoint") else {"epsilon": epsilon}
    kept = {} if name in ("dpcp", "noisy-midpoint") else {"beta": BETA}
    return lambda bins: MECHANISMS[name](bins=bins, **budget, **kept)


def inflation_table(trials: int) -> list[dict[str, Any]]:
    """Mean and standard error of the inflation, and how often the threshold was too low."""
    population = true_scores(SCORES["hps"], *predictions())
    rows = []
    for n in SIZES:
        rank = conformal_rank(n=n, level=LEVEL)
        rng = np.random.default_rng(n)
        samples = [population[rng.integers(0, len(population), n)] for _ in range(trials)]
        plain = np.array([np.partition(scores, rank - 1)[rank - 1] for scores in samples])
        for epsilon in EPSILONS:
            for name in (*PURE, *OTHERS):
                make = maker(name, epsilon)
                mechanism = make(automatic_bins(make, n=n, rank=rank))
                grid, entropy = uniform_grid(mechanism.bins), SeededEntropy(name, n, str(epsilon))
                private = np.array([mechanism.release(histogram(s, grid), rank, entropy).threshold for s in samples])
                rows.append({
                    "n": n, "epsilon": epsilon, "mechanism": name, "certificate": mechanism.certificate,
                    "exact_epsilon": mechanism.privacy.epsilon, "bins": mechanism.bins,
                    "inflation": float(np.mean(private - plain)),
                    "error": float(np.std(private - plain) / trials**0.5),
                    "too_low": float(np.mean(private < plain)),
                    "certified_ranks": mechanism.inflation(n=n, rank=rank),
                })  # fmt: skip
                print(f"n={n} epsilon={epsilon} {name}", file=sys.stderr)
    return rows


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """One line a cell; thousandths of the score, too-low shares of what is not certified in brackets."""
    names = (*PURE, *OTHERS)
    lines = ["| n | epsilon | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    cells = {(row["n"], row["epsilon"], row["mechanism"]): row for row in rows}
    for n in SIZES:
        for epsilon in EPSILONS:
            line = [f"{n:,}", f"{epsilon:g}"]
            least = min(cells[n, epsilon, name]["inflation"] for name in PURE)
            for name in names:
                row = cells[n, epsilon, name]
                text = f"{1000 * row['inflation']:.1f} ± {1000 * row['error']:.1f}"
                text = f"**{text}**" if name in PURE and row["inflation"] == least else text
                line.append(text + (f" ({row['too_low']:.0%} too low)" if row["certificate"] != "certified" else ""))
            lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def plain_pps(scores: Array, edges: Array, q: float, epsilon: float, rng: np.random.Generator) -> float:
    """PPS Algorithm 2 in floats as one would write it from the paper, its missing sensitivity put in."""
    binned = np.sort(edges[np.searchsorted(edges, scores)])
    below = np.searchsorted(binned, edges, side="left")
    above = len(scores) - np.searchsorted(binned, edges, side="right")
    exponent = -epsilon / 2 * np.maximum(below / q, above / (1 - q)) / max(1 / q, 1 / (1 - q))
    weights = np.exp(exponent - exponent.max())
    return float(rng.choice(edges, p=weights / weights.sum()))


def measured(work: Callable[[], object], turns: int) -> tuple[float, float]:
    """Least and median seconds."""
    seconds = []
    for _ in range(turns):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds), float(np.median(seconds))


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
        "PPS in floats, from scores": lambda: plain_pps(scores, grid, rank / RECORDS, 1.0, rng),
        "ours, from scores": lambda: mechanism.release(histogram(scores, grid), rank, os_entropy),
        "ours, from a histogram": lambda: mechanism.release(
            type(counted)(counted.counts, counted.grid), rank, os_entropy
        ),
    }  # fmt: skip
    rows = []
    for what, work in sides.items():
        work()
        least, median = measured(work, turns)
        rows.append({"what": what, "least": least, "median": median, "bytes": peak(work)})
    return [{**row, "ratio": rows[0]["least"] / row["least"]} for row in rows]


def speed_markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| release, 100,000 bins and records | ms (least) | ms (median) | peak MB | times as fast |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        figures = f"{1e3 * row['least']:.2f} | {1e3 * row['median']:.2f} | {row['bytes'] / 1e6:.1f} | {row['ratio']:.1f}"
        lines.append(f"| {row['what']} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="releases a cell (default 200)")
    parser.add_argument("--speed", action="store_true", help="time a release instead")
    parser.add_argument("--turns", type=int, default=50, help="with --speed: releases timed a line (default 50)")
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
