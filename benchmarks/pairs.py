"""How far thresholds of labels from pairs lie above their target, and how often they are too low.

Labels are even and scores uniform, so that a threshold is its coverage. A trivial one exceeds the
target by alpha.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from confide.aggregator.procedures.pairs.procedure import class_conditional
from confide.protocol.channels.registry import auto
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.pairs import alphabet
from confide.simulation.driver import PairUsers, drive

LABELS, ALPHA, DELTA = 10, 0.1, 0.1
CASES = ((10_000, 4.0), (50_000, 4.0), (200_000, 4.0), (50_000, 2.0), (200_000, 1.0))


def row(n: int, epsilon: float, campaigns: int) -> str:
    channel, found = auto(k=alphabet(LABELS), epsilon=epsilon), []
    for seed in range(campaigns):
        rng = np.random.default_rng([seed, n])
        users = PairUsers(rng.random(n), rng.integers(LABELS, size=n), SeededEntropy("pairs", seed))
        made = drive(
            class_conditional(channel=channel, labels=LABELS, alpha=ALPHA, delta=DELTA, n=n), users
        )
        found += made.class_thresholds
    q = np.array(found)
    return (
        f"| {n:,} | {epsilon:g} | {channel.name} | {q.mean() - 1 + ALPHA:.4f} | "
        f"{np.mean(q < 1 - ALPHA):.3f} | {np.mean(q >= 1):.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=40, help="campaigns of a row")
    campaigns = parser.parse_args().campaigns
    print("| n | epsilon | channel | mean excess | too low | trivial |")
    print("|---:|---:|---|---:|---:|---:|")
    for n, epsilon in CASES:
        print(row(n, epsilon, campaigns), flush=True)


if __name__ == "__main__":
    main()
