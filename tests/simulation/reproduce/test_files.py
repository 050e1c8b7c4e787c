"""Published files are read as they are, and refused when they are something else."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.protocol.errors import BadInput
from confide.simulation.reproduce.files import (
    CIFAR_TEST,
    california,
    cifar10,
    medmnist,
    mnist_format,
)
from tests.support.programs.published_files import (
    images,
    write_california,
    write_cifar,
    write_idx,
    write_medmnist,
)


def test_a_medmnist_file_has_three_parts(tmp_path: Path) -> None:
    """Bytes become numbers from 0 to 1, in planes; labels lose their second dimension."""
    write_medmnist(tmp_path / "x.npz", each=7)
    parts = medmnist(tmp_path / "x.npz")
    pixels, labels = images(7, (8, 8), 4, seed=1)
    assert list(parts) == ["train", "val", "test"]
    assert parts["val"].images.shape == (7, 1, 8, 8)
    np.testing.assert_array_equal(parts["val"].labels, labels)
    np.testing.assert_array_equal(np.rint(parts["val"].images[:, 0] * 255), pixels)


def test_colours_of_medmnist_become_planes(tmp_path: Path) -> None:
    """Its colour images have the channel last."""
    pixels, labels = images(5, (6, 7, 3), 2)
    part = {"images": pixels, "labels": labels[:, None]}
    arrays: dict[str, Any] = {
        f"{name}_{what}": part[what] for name in ("train", "val", "test") for what in part
    }
    np.savez(tmp_path / "x.npz", **arrays)
    planes = medmnist(tmp_path / "x.npz")["test"].images
    assert planes.shape == (5, 3, 6, 7)
    np.testing.assert_array_equal(np.rint(planes[:, 2] * 255), pixels[..., 2])


def test_cifar_batches_are_joined(tmp_path: Path) -> None:
    """A record is a label, then the red, the green and the blue plane."""
    write_cifar(tmp_path / "c", each=3)
    training, test = cifar10(tmp_path / "c")
    pixels, labels = images(3, (3, 32, 32), 10, seed=4)
    assert (len(training), len(test)) == (15, 3)
    np.testing.assert_array_equal(training.labels[12:], labels)
    np.testing.assert_array_equal(np.rint(training.images[12:] * 255), pixels)


@pytest.mark.parametrize("packed", [True, False])
def test_mnists_format_is_read_plain_and_packed(tmp_path: Path, packed: bool) -> None:
    """Lengths are big-endian."""
    pixels, labels = write_idx(tmp_path, "t10k", packed=packed)
    found = mnist_format(tmp_path, "t10k")
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(np.rint(found.images[:, 0] * 255), pixels)


def test_california_has_the_features_of_scikit_learn(tmp_path: Path) -> None:
    """Totals become means a household; missing bedrooms are one a household."""
    write_california(tmp_path / "h.csv", 5)
    found = california(tmp_path / "h.csv")
    assert (found.features.shape, found.bound) == ((5, 8), 5.0)
    # 6 rooms of at most 12, 1 bedroom of at most 3, 3 persons of at most 8, as -1 to 1.
    np.testing.assert_allclose(found.features[:, 2], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.features[:, 3], -1 / 3)
    np.testing.assert_allclose(found.features[:, 5], -1 / 4)
    assert 0.4 < found.targets.min() < found.targets.max() < 4.2


def test_the_other_layout_gives_the_same_records(tmp_path: Path) -> None:
    """Scikit-learn's own columns are taken as they are."""
    heading = (
        "MedInc,HouseAge,AveRooms,AveBedrms,Population,AveOccup,Latitude,Longitude,MedHouseVal"
    )
    (tmp_path / "s.csv").write_text(f"{heading}\n7.5,26,6,1.5,2500,4,37,-119.5,9\n")
    found = california(tmp_path / "s.csv")
    np.testing.assert_allclose(found.features, 0.0, atol=1e-12)
    assert found.targets == [5.0]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def cut_inside(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))


def line_cut(path: Path) -> None:
    path.write_text(path.read_text() + "-120.5,37.25\n")


@pytest.mark.parametrize(
    ("damage", "name", "message"),
    [
        (cut, "x.npz", "cannot be read as an npz file"),
        (cut, f"c/{CIFAR_TEST}", "whole records of 3,073 bytes"),
        (cut, "train-images-idx3-ubyte.gz", "cannot be read"),
        (cut_inside, "train-images-idx3-ubyte.gz", "announces 240"),
        (cut_inside, "train-labels-idx1-ubyte.gz", "announces 12"),
        (line_cut, "h.csv", "a line is cut short"),
        (Path.unlink, "c/data_batch_3.bin", "cannot be read"),
        (Path.unlink, "h.csv", "cannot be read as a csv"),
    ],
)
def test_files_cut_short_are_refused(
    tmp_path: Path, damage: Callable[[Path], None], name: str, message: str
) -> None:
    """The message names the file and what is accepted."""
    write_medmnist(tmp_path / "x.npz", each=3)
    write_cifar(tmp_path / "c", each=2)
    write_idx(tmp_path, "train")
    write_california(tmp_path / "h.csv", 3)

    def read() -> None:
        medmnist(tmp_path / "x.npz")
        cifar10(tmp_path / "c")
        mnist_format(tmp_path, "train")
        california(tmp_path / "h.csv")

    read()
    damage(tmp_path / name)
    with pytest.raises(BadInput, match=message) as refused:
        read()
    assert Path(name).stem.split(".")[0] in str(refused.value)


def test_something_else_is_refused(tmp_path: Path) -> None:
    """Labels above 9, another magic, wrong columns, numbers that are words."""
    write_cifar(tmp_path / "c", each=1)
    (tmp_path / "c" / CIFAR_TEST).write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(BadInput, match="accepted are 0 to 9"):
        cifar10(tmp_path / "c")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(bytes(40))
    with pytest.raises(BadInput, match="does not begin like"):
        mnist_format(tmp_path, "train")
    (tmp_path / "h.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="has columns a, b"):
        california(tmp_path / "h.csv")
    write_california(tmp_path / "h.csv", 2)
    (tmp_path / "h.csv").write_text((tmp_path / "h.csv").read_text().replace("37.25", "north"))
    with pytest.raises(BadInput, match="column latitude"):
        california(tmp_path / "h.csv")
    parts = [(part, what) for part in ("train", "val", "test") for what in ("images", "labels")]
    arrays: dict[str, Any] = {f"{part}_{what}": np.zeros((2, 3, 3)) for part, what in parts}
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(BadInput, match="float64"):
        medmnist(tmp_path / "x.npz")
