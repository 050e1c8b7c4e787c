"""Records with several true labels, for which the false-negative rate of a threshold is known."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LABELS, TRUE = 6, 3


class ManyLabels(NamedTuple):
    """Probabilities and flags of true labels."""

    chances: NDArray[np.float32]
    flags: NDArray[np.bool_]


def many_labels(n: int, seed: int) -> ManyLabels:
    """Three true labels a record, whose scores 1 - p are uniform: a threshold q misses 1 - q."""
    rng = np.random.default_rng(seed)
    flags = rng.permuted(np.tile(np.arange(LABELS) < TRUE, (n, 1)), axis=1)
    chances = np.where(flags, rng.random((n, LABELS)), rng.random((n, LABELS)) ** 3)
    return ManyLabels(chances.astype(np.float32), flags)


def missed(threshold: float) -> float:
    """The expected false-negative rate at a threshold."""
    return 1 - threshold


def write_many_labels(path: Path, held: ManyLabels, first: int) -> Path:
    """Write a csv file of these records, with ids from `first` on."""
    names = [f"{name}{i}" for name in ("p", "true") for i in range(LABELS)]
    rows: list[Any] = [",".join(["id", *names])]
    for i, (chances, flags) in enumerate(zip(held.chances, held.flags, strict=True), start=first):
        rows.append(",".join([str(i), *map(repr, chances.tolist()), *map(str, flags.astype(int))]))
    path.write_text("\n".join(rows) + "\n")
    return path
