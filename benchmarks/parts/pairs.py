"""How far thresholds of labels from pairs lie above their target, and how often they are too low.

Labels are even. Where they are alike, scores are uniform, so that a threshold is its coverage;
where they differ, coverage of label y at threshold q is q^b, with b from 0.36 to 2.9. A trivial
threshold exceeds the target by alpha. Excess stands also in standard errors of the coverage that n
reports show of a label.
"""

import argparse
import sys
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.aggregator.procedures.pairs.procedure import class_conditional
from confide.protocol.channels.registry import auto
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.pairs import alphabet
from confide.simulation.driver import PairUsers, drive

LABELS, ALPHA, DELTA = 10, 0.1, 0.1
CASES = ((10_000, 4.0), (50_000, 4.0), (200_000, 4.0), (50_000, 2.0), (200_000, 1.0))
POWERS = {"alike": np.ones(LABELS), "different": np.geomspace(0.35, 2.8, LABELS)}


def covered(n: int, epsilon: float, powers: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The coverage of every label at its threshold, from one campaign."""
    rng = np.random.default_rng([seed, n])
    scores, labels = rng.random(n), rng.integers(LABELS, size=n)
    users = PairUsers(scores ** powers[labels], labels, SeededEntropy("pairs", seed))
    channel = auto(k=alphabet(LABELS), epsilon=epsilon)
    asked = class_conditional(channel=channel, labels=LABELS, alpha=ALPHA, delta=DELTA, n=n)
    found = drive(asked, users)
    return np.array(found.class_thresholds) ** (1 / powers)


def standard_error(n: int, epsilon: float) -> float:
    """That of coverage at the target, for a label that has its even share of n records."""
    channel = auto(k=alphabet(LABELS), epsilon=epsilon)
    shares = np.array([(1 - ALPHA) / LABELS, ALPHA / LABELS])
    rates = float(channel.spill) + float(channel.hit - channel.spill) * shares
    variance = float((np.array([ALPHA, 1 - ALPHA]) ** 2 * rates * (1 - rates)).sum())
    return LABELS * float(np.sqrt(variance / n)) / float(channel.hit - channel.spill)


def row(n: int, epsilon: float, like: str, campaigns: int) -> str:
    found = np.concatenate([covered(n, epsilon, POWERS[like], seed) for seed in range(campaigns)])
    excess, name = found.mean() - 1 + ALPHA, auto(k=alphabet(LABELS), epsilon=epsilon).name
    return (
        f"| {n:,} | {epsilon:g} | {name} | {like} | {excess:.4f} | "
        f"{excess / standard_error(n, epsilon):.2f} | {np.mean(found < 1 - ALPHA - 1e-12):.3f} | "
        f"{np.mean(found >= 1):.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=40, help="campaigns of a row")
    campaigns = parser.parse_args().campaigns
    print("| n | epsilon | channel | labels | mean excess | in errors | too low | trivial |")
    print("|---:|---:|---|---|---:|---:|---:|---:|")
    for (n, epsilon), like in product(CASES, POWERS):
        print(row(n, epsilon, like, campaigns), flush=True)


if __name__ == "__main__":
    main()
