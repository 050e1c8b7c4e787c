"""Bits against labels where owners can score, and what own records of the provider are worth.

`letters` are the embedded predictions, of 26 labels. `made-up` are ten classes: logits are standard
normal, that of the truth is 1.6 higher, and the model doubles them; it is right in about 54 % of
cases. `python benchmarks/local/who_scores.py` prints both tables of docs/local-methods.md.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import confide
from confide.protocol.simulated.embedded import predictions

CLASSES, SHIFT, SHARPNESS, N = 10, 1.6, 2.0, 10_000

Array = NDArray[Any]


def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Probabilities and labels of n records."""
    labels, logits = rng.integers(0, CLASSES, n), rng.normal(size=(n, CLASSES))
    logits[np.arange(n), labels] += SHIFT
    weights = np.exp(SHARPNESS * logits)
    return weights / weights.sum(axis=1, keepdims=True), labels


def table(probs: Array, labels: Array, columns: dict[str, Any], given: argparse.Namespace) -> None:
    """Print the mean set size of every column, a method with its settings, at every epsilon."""
    asked: dict[str, Any] = {"n": N, "trials": given.trials, "seed": 1}
    plain = confide.evaluate(probs, labels, method="non-private", **asked)
    print(f"| epsilon | {' | '.join(columns)} | non-private |")
    print("|---" * (len(columns) + 2) + "|")
    for epsilon in given.epsilons:
        sizes = [
            confide.evaluate(probs, labels, epsilon=epsilon, **asked, **settings).size
            for settings in columns.values()
        ]
        print(f"| {epsilon:g} | {' | '.join(f'{size:.2f}' for size in (*sizes, plain.size))} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    given = parser.parse_args()
    both: dict[str, Any] = {
        "labels:certified": {"method": "labels"},
        "bits:certified": {"method": "bits"},
    }
    print("letters\n")
    table(*predictions(), both, given)
    print("\nmade-up\n")
    rng = np.random.default_rng(0)
    probs, labels = draw(3 * N, rng)
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "own.npz"
        np.savez(own, probs=draw(N // 2, rng)[0])
        placed = {"with own records": {"method": "labels", "provider_data": str(own)}}
        first, second = both.items()
        table(probs, labels, dict([first]) | placed | dict([second]), given)


if __name__ == "__main__":
    main()
