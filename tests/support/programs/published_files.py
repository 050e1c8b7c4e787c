"""Small files in the formats in which data sets are published."""

import csv
import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.simulation.reproduce.files import CIFAR_TEST, CIFAR_TRAINING

Array = NDArray[Any]


def images(n: int, shape: tuple[int, ...], k: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Bytes with a brightness that grows with the label, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    light = (labels * 200 // k).reshape(-1, *[1] * len(shape))
    return (rng.integers(0, 50, (n, *shape)) + light).astype(np.uint8), labels


def write_medmnist(path: Path, *, k: int = 4, each: int = 60, side: int = 8) -> None:
    """A MedMNIST file: three parts, labels as a column."""
    arrays: dict[str, Any] = {}
    for seed, part in enumerate(("train", "val", "test")):
        pixels, labels = images(each, (side, side), k, seed=seed)
        arrays |= {f"{part}_images": pixels, f"{part}_labels": labels[:, None].astype(np.uint8)}
    np.savez(path, **arrays)


def write_cifar(folder: Path, *, each: int = 8) -> None:
    """Six batches of CIFAR-10's binary version."""
    folder.mkdir()
    for seed, name in enumerate((*CIFAR_TRAINING, CIFAR_TEST)):
        pixels, labels = images(each, (3, 32, 32), 10, seed=seed)
        flat = np.column_stack([labels.astype(np.uint8), pixels.reshape(each, -1)])
        (folder / name).write_bytes(flat.tobytes())


def write_idx(folder: Path, part: str, *, n: int = 12, packed: bool = True) -> tuple[Array, Array]:
    """Images of 5 x 4 and labels in MNIST's format."""
    pixels, labels = images(n, (5, 4), 10)
    contents = {
        f"{part}-images-idx3-ubyte": struct.pack(">4I", 0x803, n, 5, 4) + pixels.tobytes(),
        f"{part}-labels-idx1-ubyte": struct.pack(">2I", 0x801, n)
        + labels.astype(np.uint8).tobytes(),
    }
    for name, content in contents.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return pixels, labels


TOTALS = (
    *("longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms"),
    *("population", "households", "median_income", "median_house_value", "ocean_proximity"),
)


def write_california(path: Path, n: int = 400) -> None:
    """A csv with totals a district; the bedrooms of the first are missing."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(TOTALS)
        for place in range(n):
            households, income = rng.integers(100, 900), rng.uniform(1, 9)
            bedrooms = "" if place == 0 else households
            writer.writerow(
                [
                    *(-120.5, 37.25, 26.0, 6 * households, bedrooms, 3 * households, households),
                    *(income, 40_000 * income + rng.uniform(0, 50_000), "INLAND"),
                ]
            )
