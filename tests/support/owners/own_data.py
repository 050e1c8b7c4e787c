"""Files of a user's own records: letters of twelve hospitals of unequal size."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from confide.protocol.simulated.embedded import embedded_model, owned, predictions
from confide.simulation.defaults import run_defaults

# The records of each hospital.
SIZES = (20, 30, 40, 60, 80, 100, 150, 200, 250, 300, 400, 870)
HOSPITALS = tuple(f"hospital {chr(ord('A') + number)}" for number in range(len(SIZES)))
N = sum(SIZES)


def write_features(path: Path) -> Path:
    """Write a csv file with features, labels and a column of hospitals, and without ids."""
    features, labels = owned()
    names = np.repeat(HOSPITALS, SIZES)[np.random.default_rng(1).permutation(N)]
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["hospital", "label", *(f"x{i}" for i in range(features.shape[1]))])
        out.writerows([names[i], labels[i], *features[i]] for i in range(N))
    return path


def write_probabilities(path: Path, **changes: Any) -> Path:
    """Write an npz file with probabilities, labels and an array of hospitals; with these changes.

    An array that is None is left out.
    """
    probs, labels = predictions()
    arrays = {
        "probs": probs[:N],
        "labels": labels[:N],
        "hospital": np.repeat(HOSPITALS, SIZES),
    } | changes
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return path


def write_model(path: Path) -> Path:
    path.write_bytes(embedded_model())
    return path


def config(**given: Any) -> dict[str, Any]:
    """The run configuration with these settings, whose names have hyphens."""
    values = {name.replace("_", "-"): value for name, value in given.items()}
    return run_defaults() | {
        name: str(value) if isinstance(value, Path) else value for name, value in values.items()
    }
