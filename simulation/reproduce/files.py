"""Data sets as they are published, read from files that the user has: nothing is downloaded.

    MedMNIST            NAME.npz with train_images, train_labels, val_..., test_...
    CIFAR-10            the folder cifar-10-batches-bin: five data_batch_N.bin and test_batch.bin
    MNIST's format      train-images-idx3-ubyte and the like, plain or .gz
    California housing  a csv with a heading

Images are numbers from 0 to 255 and come back in [0, 1]; these limits are public.
"""

import csv
import gzip
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.training.scaling import public_scaling
from confide.protocol.errors import BadInput
from confide.simulation.data.population import Lessons, read_arrays

Array = NDArray[Any]

CIFAR_TRAINING = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
CIFAR_TEST = "test_batch.bin"
# A record is a label, then three planes of 32 x 32.
CIFAR_SHAPE = (3, 32, 32)
IDX_IMAGES, IDX_LABELS = 0x803, 0x801


@dataclass(frozen=True)
class Images:
    """Images as (n, channels, height, width) in [0, 1], single precision, and their labels."""

    name: str
    images: Array
    labels: Array

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or len(self.images) != len(self.labels) or not len(self.labels):
            raise BadInput(
                f"{self.name} holds images of shape {self.images.shape} and "
                f"{len(self.labels)} labels; accepted is a label for each of one image or more"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def flat(self) -> Array:
        return self.images.reshape(len(self), -1)


def medmnist(path: Path) -> dict[str, Images]:
    """The parts train, val and test of a MedMNIST file; images (n, h, w) or (n, h, w, 3)."""
    parts = ("train", "val", "test")
    shapes = {}
    for part in parts:
        shapes[f"{part}_images"] = "(n, height, width[, 3])"
        shapes[f"{part}_labels"] = "(n, 1)"
    arrays = dict(zip(shapes, read_arrays(path, **shapes), strict=True))
    return {
        part: _checked(f"{part} of {path}", arrays[f"{part}_images"], arrays[f"{part}_labels"])
        for part in parts
    }


def _unit(values: Array) -> Array:
    """Bytes as numbers from 0 to 1, in single precision."""
    return np.asarray(values.astype(np.float32) / np.float32(255))


def _checked(name: str, images: Array, labels: Array) -> Images:
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or labels.dtype.kind not in "iu":
        raise BadInput(
            f"{name} holds images of type {images.dtype} and shape {images.shape}, labels of type "
            f"{labels.dtype}; accepted are uint8 (n, height, width) or (n, height, width, 3), and "
            "integers"
        )
    if labels.size != len(labels):
        raise BadInput(
            f"{name} has labels of shape {labels.shape}; accepted is one label an image (n, 1)"
        )
    planes = images[:, None] if images.ndim == 3 else np.moveaxis(images, 3, 1)
    return Images(name, _unit(planes), labels.reshape(-1).astype(np.int64))


def cifar10(folder: Path) -> tuple[Images, Images]:
    """The 50,000 training images and the 10,000 test images of the binary version."""
    training = [_cifar_batch(folder / name) for name in CIFAR_TRAINING]
    joined = Images(
        f"training batches of {folder}",
        np.concatenate([batch.images for batch in training]),
        np.concatenate([batch.labels for batch in training]),
    )
    return joined, _cifar_batch(folder / CIFAR_TEST)


def _cifar_batch(path: Path) -> Images:
    size = 1 + math.prod(CIFAR_SHAPE)
    content = _bytes(path, "a batch of CIFAR-10's binary version")
    if not content or len(content) % size:
        raise BadInput(
            f"{path} has {len(content):,} bytes; accepted are whole records of {size:,} bytes, a "
            "label and 32 x 32 x 3 values"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
    if records[:, 0].max() > 9:
        raise BadInput(
            f"{path} has the label {records[:, 0].max()}; accepted are 0 to 9 (CIFAR-10, not -100)"
        )
    images = _unit(records[:, 1:].reshape(-1, *CIFAR_SHAPE))
    return Images(str(path), images, records[:, 0].astype(np.int64))


def mnist_format(folder: Path, part: str) -> Images:
    """The part `train` or `t10k` of a folder of idx files, each plain or compressed by gzip."""
    images = _idx(folder, f"{part}-images-idx3-ubyte", magic=IDX_IMAGES)
    labels = _idx(folder, f"{part}-labels-idx1-ubyte", magic=IDX_LABELS)
    planes = _unit(images[:, None])
    return Images(f"{part} of {folder}", planes, labels.astype(np.int64))


def _idx(folder: Path, name: str, *, magic: int) -> Array:
    """An array of bytes: magic, one length a dimension, then the values."""
    packed = folder / f"{name}.gz"
    path = packed if packed.exists() else folder / name
    content = _bytes(path, "a file in MNIST's format", gunzip=packed.exists())
    dimensions = magic & 0xFF
    head = 4 * (1 + dimensions)
    if len(content) < head or int.from_bytes(content[:4]) != magic:
        raise BadInput(
            f"{path} does not begin like {name}; accepted is an idx file with magic {magic:#x}"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    if len(content) - head != math.prod(shape):
        raise BadInput(
            f"{path} holds {len(content) - head:,} values and announces {math.prod(shape):,}; "
            "accepted is a whole file"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


def _bytes(path: Path, what: str, *, gunzip: bool = False) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if gunzip else path.read_bytes()
    except (OSError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: {error}; accepted is {what}") from None


# What is known of Californian districts without these records: limits of the eight features of
# scikit-learn's version, and of house values, which the census cut at $500,001.
CALIFORNIA_LIMITS = {
    "MedInc": (0.0, 15.0),
    "HouseAge": (0.0, 52.0),
    "AveRooms": (0.0, 12.0),
    "AveBedrms": (0.0, 3.0),
    "Population": (0.0, 5_000.0),
    "AveOccup": (0.0, 8.0),
    "Latitude": (32.0, 42.0),
    "Longitude": (-125.0, -114.0),
}
CALIFORNIA_BOUND = 5.0
_Rows = dict[str, Array]


def _per_household(rows: _Rows) -> _Rows:
    """Scikit-learn's features from the totals of the original file."""
    return {
        "MedInc": rows["median_income"],
        "HouseAge": rows["housing_median_age"],
        "AveRooms": rows["total_rooms"] / rows["households"],
        "AveBedrms": rows["total_bedrooms"] / rows["households"],
        "Population": rows["population"],
        "AveOccup": rows["population"] / rows["households"],
        "Latitude": rows["latitude"],
        "Longitude": rows["longitude"],
        "MedHouseVal": rows["median_house_value"] / 100_000,
    }


_TOTALS: tuple[str, ...] = (
    "longitude",
    "latitude",
    "housing_median_age",
    "total_rooms",
    "total_bedrooms",
)
_TOTALS += ("population", "households", "median_income", "median_house_value")
_LAYOUTS: tuple[tuple[tuple[str, ...], Callable[[_Rows], _Rows]], ...] = (
    (_TOTALS, _per_household),
    ((*CALIFORNIA_LIMITS, "MedHouseVal"), dict),
)


def california(path: Path) -> Lessons:
    """Eight features on a public scale and the median house value in units of $100,000.

    Districts whose number of bedrooms is missing, 207 of 20,640, get one bedroom a household.
    """
    try:
        with path.open(newline="") as file:
            heading, *lines = csv.reader(file)
    except (OSError, ValueError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as a csv with a heading: {error}") from None
    layout = next((one for one in _LAYOUTS if set(one[0]) <= set(heading)), None)
    if layout is None:
        accepted = " or ".join(", ".join(names) for names, _ in _LAYOUTS)
        raise BadInput(f"{path} has columns {', '.join(heading)}; accepted are {accepted}")
    names, convert = layout
    columns = {name: _column(path, lines, name, place=heading.index(name)) for name in names}
    if "total_bedrooms" in columns:
        missing = np.isnan(columns["total_bedrooms"])
        columns["total_bedrooms"][missing] = columns["households"][missing]
    made = convert(columns)
    features = np.column_stack([made[name] for name in CALIFORNIA_LIMITS])
    targets = np.clip(made["MedHouseVal"], 0.0, CALIFORNIA_BOUND)
    if not (len(targets) and np.isfinite(features).all() and np.isfinite(targets).all()):
        raise BadInput(
            f"{path} has no lines, or values that are no numbers; accepted are finite numbers, and "
            "nothing at most for total_bedrooms"
        )
    low, high = np.array(list(CALIFORNIA_LIMITS.values())).T
    scaled = public_scaling(low, high)(features)
    return Lessons(f"California housing ({path.name})", scaled, targets, CALIFORNIA_BOUND)


def _column(path: Path, lines: list[list[str]], name: str, *, place: int) -> Array:
    try:
        return np.array([float(line[place]) if line[place] else math.nan for line in lines])
    except (ValueError, IndexError) as error:
        raise BadInput(
            f"{path}: column {name} has something else than numbers, or a line is cut short: "
            f"{error}"
        ) from None
