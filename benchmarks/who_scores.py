"""Bits against labels where owners can score, and what own records of the provider are worth.

Ten made-up classes: logits are standard normal, that of the truth is 1.6 higher, and the model
doubles them; it is right in about 54 % of cases. `python benchmarks/who_scores.py` prints the table
of docs/local-methods.md.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import confide

CLASSES, SHIFT, SHARPNESS, N = 10, 1.6, 2.0, 10_000

Array = NDArray[Any]


def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Probabilities and labels of n records."""
    labels, logits = rng.integers(0, CLASSES, n), rng.normal(size=(n, CLASSES))
    logits[np.arange(n), labels] += SHIFT
    weights = np.exp(SHARPNESS * logits)
    return weights / weights.sum(axis=1, keepdims=True), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    probs, labels = draw(3 * N, rng)
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "own.npz"
        np.savez(own, probs=draw(N // 2, rng)[0])
        asked: dict[str, Any] = {"n": N, "trials": given.trials, "seed": 1}
        plain = confide.evaluate(probs, labels, method="non-private", **asked)
        print("| epsilon | labels | labels, own records | bits | non-private |")
        print("|---|---|---|---|---|")
        for epsilon in given.epsilons:
            sizes = [
                confide.evaluate(
                    probs, labels, method=method, epsilon=epsilon, **asked, **settings
                ).size
                for method, settings in (
                    ("labels", {}),
                    ("labels", {"provider_data": str(own)}),
                    ("bits", {}),
                )
            ]
            cells = " | ".join(f"{size:.2f}" for size in (*sizes, plain.size))
            print(f"| {epsilon:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
