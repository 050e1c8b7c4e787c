from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from confide.client.records.reader import read_records
from confide.client.records.records import Records
from confide.protocol.errors import BadInput

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.2, 0.2, 0.6]])
LABELS = np.array([0, 1, 2, 2])
IDS = np.array(["anna", "ben", "cleo", "dan"])
FEATURES = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [2.0, 1.0]], dtype=np.float32)


def write_npz(path: Path, features: bool) -> None:
    np.savez(
        path, labels=LABELS, ids=IDS, **({"features": FEATURES} if features else {"probs": PROBS})
    )


def columns(features: bool) -> dict[str, list[Any]]:
    values, names = (FEATURES, ("a", "b")) if features else (PROBS, ("p0", "p1", "p2"))
    return {
        "id": IDS.tolist(),
        "label": LABELS.tolist(),
        **{name: values[:, i].tolist() for i, name in enumerate(names)},
    }


def write_csv(path: Path, features: bool) -> None:
    table = columns(features)
    rows = zip(*table.values(), strict=True)
    path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")


def write_parquet(path: Path, features: bool) -> None:
    pq.write_table(pa.table(columns(features)), path)


WRITERS: dict[str, Callable[[Path, bool], None]] = {
    ".npz": write_npz,
    ".csv": write_csv,
    ".parquet": write_parquet,
}


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("suffix", list(WRITERS))
def test_records_are_read_from_every_format(suffix: str, features: bool, tmp_path: Path) -> None:
    """npz, csv and parquet give the same probabilities or features, labels and names."""
    path = tmp_path / f"records{suffix}"
    WRITERS[suffix](path, features)
    found = read_records(path)
    values, other = (found.features, found.results) if features else (found.results, found.features)
    assert values is not None
    np.testing.assert_allclose(values, FEATURES if features else PROBS)
    assert other is None
    assert found.truth.tolist() == LABELS.tolist()
    assert found.names == (b"anna", b"ben", b"cleo", b"dan")
    assert (found.model, found.persons) == (None, None)


def test_persons_are_charged_where_they_are_named(tmp_path: Path) -> None:
    """Persons are normalised like ids and may repeat; every format has them."""
    (tmp_path / "r.csv").write_text("id,person,label,a\n1,04,0,1\n2,4.0,0,1\n3,eva ,0,1\n")
    np.savez(
        tmp_path / "r.npz",
        ids=[1, 2, 3],
        persons=np.array(["4", "4", "eva"]),
        labels=[0, 0, 0],
        features=np.ones((3, 1)),
    )
    pq.write_table(
        pa.table(
            {"id": [1, 2, 3], "person": ["4", "4.0", "eva"], "label": [0, 0, 0], "a": [1, 1, 1]}
        ),
        tmp_path / "r.parquet",
    )
    for suffix in WRITERS:
        found = read_records(tmp_path / f"r{suffix}")
        assert found.names == (b"1", b"2", b"3")
        assert found.persons == (b"4", b"4", b"eva")
        assert found.features is not None
        assert found.features.shape == (3, 1)


def test_labels_of_any_range_are_read(tmp_path: Path) -> None:
    """Negative ones, and ones beyond the probabilities, are no error here: an error would depend on
    a record's label."""
    np.savez(
        tmp_path / "r.npz",
        id=[1, 2, 3],
        label=np.array([-4.0, 2.0, 1e6]),
        probs=np.full((3, 2), 0.5),
    )
    found = read_records(tmp_path / "r.npz")
    assert found.truth.tolist() == [-4, 2, 1000000]
    assert found.truth.dtype == np.int64
    extremes = np.array([-(2**63), 2**63 - 1])
    np.savez(tmp_path / "r.npz", id=[1, 2], label=extremes, probs=np.full((2, 2), 0.5))
    assert np.array_equal(read_records(tmp_path / "r.npz").truth, extremes)


def test_probabilities_are_put_in_the_order_of_labels(tmp_path: Path) -> None:
    """Columns p0, p1, ... may stand in any order."""
    (tmp_path / "r.csv").write_text("p1,label,p2,p0,id\n0.2,0,0.1,0.7,x\n")
    found = read_records(tmp_path / "r.csv").results
    assert found is not None
    assert found.tolist() == [[0.7, 0.2, 0.1]]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.txt", "", "accepted are .npz, .csv and .parquet"),
        ("x.csv", "", "no header"),
        ("x.csv", "id,label,p0,p1\n1,0,0.5\n", "line 2"),
        ("x.csv", "id,p0,p1\n1,0.5,0.5\n", "missing: label"),
        (
            "x.csv",
            "label,p0,p1\n0,0.5,0.5\n",
            "missing: id .what a record has spent is kept under its id",
        ),
        ("x.csv", "label,a,b\n0,0.5,0.5\n", "missing: id"),
        ("x.csv", "id,label\n1,0\n", "missing: probabilities or features"),
        ("x.csv", "id,label,p0,p1\n1,0,0.5,0.5\n ,0,0.5,0.5\n", "line 3: its id is missing"),
        ("x.csv", "id,person,label,a\n1,,0,0.5\n", "line 2: its person is missing"),
        ("x.csv", "id,label,p0,p1\n1,0,0.5,0.6\n", "sum to"),
        ("x.csv", "id,label,p0,p1\n1,0.5,0.5,0.5\n", "not whole numbers"),
        ("x.csv", "id,label,p0,p1\n1,inf,0.5,0.5\n", "not whole numbers"),
        ("x.csv", "id,label,p0,p1\n1,1e19,0.5,0.5\n", "64-bit"),
        ("x.csv", "id,label,p0,p1\n1,zero,0.5,0.5\n", "cannot be read"),
        ("x.csv", "id,label,a\n1,0,nan\n", "not finite"),
        ("x.csv", "id,label,a, a\n1,0,1,2\n", "column 'a' twice"),
        ("x.csv", f"id,label,a\n1,0,{'1' * 200000}\n", "cannot be read"),
        ("x.npz", "nothing", "cannot be read"),
        ("x.parquet", "nothing", "cannot be read"),
    ],
)
def test_unusable_records_are_refused_with_the_reason(
    name: str, content: str, says: str, tmp_path: Path
) -> None:
    """The message names the file, what was found and what is accepted."""
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=says) as refused:
        read_records(tmp_path / name)
    assert name in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"id": np.array(["a", {}], dtype=object)}, "cannot be read: Object arrays"),
        ({"id": np.array([1, 2, 3])}, "3 different names for 2 records"),
        ({"id": np.array([True, False])}, "its id is of type bool"),
        ({"id": np.array(7)}, "single values"),
        ({"label": np.array(["0", "1"])}, "labels are of type"),
        ({"label": np.array([0, 2**64 - 1], dtype=np.uint64)}, "64-bit"),
        ({"labels": np.array([0, 1])}, "column 'label' twice"),
        ({"features": np.array([["a"], ["b"]])}, "accepted are finite numbers"),
        ({"features": np.array([[1.0], [np.inf]])}, "accepted are finite numbers"),
        ({"features": np.ones((3, 1))}, "2 labels for 3 rows of features"),
        ({"persons": np.array(["a"])}, "2 labels for 1 rows of persons"),
    ],
)
def test_unusable_arrays_are_refused_with_the_reason(
    changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    """In npz files everything may have another type or shape."""
    arrays: dict[str, Any] = {
        "id": np.array([1, 2]),
        "label": np.array([0, 1]),
        "features": np.ones((2, 1)),
    }
    np.savez(tmp_path / "r.npz", allow_pickle=True, **(arrays | changed))
    with pytest.raises(BadInput, match=says):
        read_records(tmp_path / "r.npz")
    (tmp_path / "r.npz").write_bytes(b"text")
    with pytest.raises(BadInput, match=r"cannot be read: it is no npz file; accepted"):
        read_records(tmp_path / "r.npz")


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (
            {"id": pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)])},
            "row 1: its id is of type datetime",
        ),
        ({"id": pa.array(["a", None])}, "row 2: its id is missing"),
        ({"a": pa.array([[1.0, 2.0], [3.0, 4.0]])}, "columns of lists"),
        ({"a": pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)])}, "column 'a' holds"),
    ],
)
def test_unusable_parquet_columns_are_refused_with_the_reason(
    column: dict[str, Any], says: str, tmp_path: Path
) -> None:
    """Dates, lists and missing values."""
    pq.write_table(
        pa.table({"id": [1, 2], "label": [0, 1], "a": [1.0, 2.0]} | column), tmp_path / "r.parquet"
    )
    with pytest.raises(BadInput, match=says):
        read_records(tmp_path / "r.parquet")


def test_records_check_themselves() -> None:
    """Made in memory they obey the same rules: a name each, a row each."""
    with pytest.raises(BadInput, match="1 different names for 2 records"):
        Records((b"a", b"a"), None, np.array([0, 1]))
    with pytest.raises(BadInput, match=r"accepted is a label \(integer\), a target \(float\)"):
        Records((b"a",), None, np.array(["0.5"]))
    with pytest.raises(
        BadInput, match="the columns prediction; accepted is a number a record and column"
    ):
        Records((b"a",), np.ones((1, 2)), np.array([0.5]), columns=("prediction",))
