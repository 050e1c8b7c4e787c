import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.client.records.ids import normal_id
from confide.client.records.reader import read_records
from confide.protocol.errors import BadInput

SEVEN: list[Any] = [
    7,
    7.0,
    "7",
    " 7",
    "7 ",
    "7.00",
    "7.",
    "+7",
    "007",
    "7e0",
    "70E-1",
    "0.7e+1",
    "\ufeff7",
    "\u200b7\u2060",
    "\t7\xa0",
    "\uff17",
    "\u0667",
    b"7",
    b" 7.0",
    np.int8(7),
    np.uint64(7),
    np.float16(7),
    np.float64(7),
    np.str_("7"),
    np.bytes_(b"7"),
]


@pytest.mark.parametrize("written", SEVEN, ids=repr)
def test_a_number_has_one_name_however_it_is_written(written: Any) -> None:
    """7 is 7 as an integer, a float, text with zeros, signs, spaces, exponents or other digits."""
    assert normal_id(np.asarray([written]).tolist()[0]) == b"7"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("anna", "anna"),
        ("Anna", "anna"),
        ("b\u2013c", "b-c"),
        ("b\u2212c", "b-c"),
        ("anna\x00", "anna"),
        (" anna\n", "anna"),
        ("\ufeffanna", "anna"),
        ("an\u00adna", "anna"),
        ("Jose\u0301", "josé"),
        ("ﬁn", "fin"),
        ("anna\u3000 b", "anna b"),
        ("-0.0", "0"),
        (-0.0, "0"),
        ("-07", "-7"),
        ("7.50", "7.5"),
        ("7.5", "7.5"),
        (".5", "0.5"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("1e5", "100000"),
        ("12e45", "12e45"),
        ("1e999999999", "1e999999999"),
        (10**30, "1" + "0" * 30),
        ("9" * 5000, "9" * 5000),
        (2**53, "9007199254740992"),
        ("9007199254740993", "9007199254740993"),
        ("0009007199254740993", "9007199254740993"),
    ],
)
def test_ids_have_one_normal_form(written: Any, name: str) -> None:
    """Text in NFKC without spaces around it or anything invisible, its case kept; numbers in full
    without needless zeros."""
    assert normal_id(written) == name.encode()


@pytest.mark.parametrize(
    "written",
    [2.0**53, -(2.0**53), 1e300, float("inf"), 7.5, "9007199254740992.0", "1e+16", "1.5E300"],
)
def test_floats_that_cannot_name_records_are_refused(written: Any) -> None:
    """From 2^53 on two ids may be one float, and another float type rounds fractions in another
    way."""
    with pytest.raises(BadInput, match="float"):
        normal_id(written)


@pytest.mark.parametrize("written", [None, float("nan"), "", "  ", "\u200b", b"", "nan", "None"])
def test_missing_ids_are_refused(written: Any) -> None:
    """An id that says nothing would be shared by all records without one."""
    with pytest.raises(BadInput, match="missing"):
        normal_id(written)


@pytest.mark.parametrize("written", [True, 7j, (7,), datetime(2026, 1, 1, tzinfo=UTC)])
def test_ids_of_other_types_are_refused(written: Any) -> None:
    """What has no one way of being written does not name a record."""
    with pytest.raises(BadInput, match="accepted are whole numbers and text"):
        normal_id(written)


@given(
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.integers(0, 4),
    st.integers(0, 3),
    st.sampled_from(["", " ", "\ufeff", "\u200b"]),
)
def test_every_way_of_writing_a_whole_number_is_one_id(
    number: int, zeros: int, decimals: int, around: str
) -> None:
    """As float, with zeros before or after, in printed float form, surrounded by nothing
    visible."""
    sign, digits = "-" if number < 0 else "", str(abs(number))
    name = str(number).encode()
    forms = [
        number,
        float(number),
        repr(float(number)),
        f"{number:e}" if float(f"{number:e}") == number else number,
        around + sign + "0" * zeros + digits + ("." + "0" * decimals if decimals else "") + around,
        sign + "".join(chr(ord(d) + 0xFEE0) for d in digits),
        name,
    ]
    assert {normal_id(form) for form in forms} == {name}


@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=500)
def test_the_normal_form_is_final(text: str) -> None:
    """Normalising twice is normalising once, and composed or decomposed characters make no
    difference."""
    try:
        name = normal_id(text)
    except BadInput:
        return
    assert normal_id(name) == name
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert normal_id(unicodedata.normalize(form, text)) == name


def rewritten(folder: Path) -> dict[str, Path]:
    """One and the same two records in many files: the ways in which a file was changed to spend a
    budget again."""
    files = {
        name: folder / name
        for name in (
            "plain.csv",
            "mark.csv",
            "order.csv",
            "scaled.csv",
            "zeros.csv",
            "f32.npz",
            "f64.npz",
            "ints.npz",
            "text.npz",
            "bytes.npz",
            "float.parquet",
            "int.parquet",
            "text.parquet",
        )
    }
    files["plain.csv"].write_text("id,label,a,b\n7,0,1,2\n12,1,3,4\n")
    files["mark.csv"].write_text("\ufeffid , label,a,b\n7,0,1,2\n12,1,3,4\n")
    files["order.csv"].write_text("b,a,label,id\n4,3,1,12\n2,1,0,7\n")
    files["scaled.csv"].write_text("id,label,a,b\n7.0,1,10,2\n12.0,1,30,4\n")
    files["zeros.csv"].write_text('id,label,a,b\n"007",0,1,2\n"0012",1,3,4\n')
    rows: dict[str, Any] = {"label": np.array([0, 1]), "features": np.array([[1, 2], [3, 4]])}
    for name, ids in {
        "f32": np.array([7, 12], dtype=np.float32),
        "f64": np.array([7.0, 12.0]),
        "ints": np.array([7, 12], dtype=np.uint8),
        "text": np.array(["7", "12"]),
        "bytes": np.array([b"7", b"12"]),
    }.items():
        np.savez(files[f"{name}.npz"], id=ids, **rows)
    kinds = {
        "float": pa.array([7.0, 12.0], pa.float32()),
        "int": pa.array([7, 12]),
        "text": pa.array(["7", "12"]),
    }
    for name, ids in kinds.items():
        pq.write_table(
            pa.table({"id": ids, "label": [0, 1], "a": [1, 3], "b": [2, 4]}),
            files[f"{name}.parquet"],
        )
    return files


def test_a_rewritten_file_has_the_same_names(tmp_path: Path) -> None:
    """Another format, order, number type, scale or byte-order mark makes no new records of old
    ones."""
    for name, path in rewritten(tmp_path).items():
        assert set(read_records(path).names) == {b"7", b"12"}, name


def test_ids_that_are_one_are_refused_in_one_file(tmp_path: Path) -> None:
    """The message names the lines and both ways of writing."""
    path = tmp_path / "records.csv"
    path.write_text("id,label,p0,p1\n007,0,0.9,0.1\nben,1,0.5,0.5\n7.0,1,0.5,0.5\n")
    with pytest.raises(BadInput, match=r"lines 2 and 4 have the same id \('007' and '7\.0'\)"):
        read_records(path)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_floats_name_records_up_to_where_their_type_is_exact(kind: str, tmp_path: Path) -> None:
    """A bound for each type of floats, in npz and parquet alike."""
    bound = {"float16": 2**11, "float32": 2**24, "float64": 2**53}[kind]
    for value in (bound - 1, bound):
        ids = np.array([value], dtype=kind)
        np.savez(tmp_path / "r.npz", id=ids, label=[0], features=[[1.0]])
        pq.write_table(
            pa.table({"id": pa.array(ids), "label": [0], "a": [1.0]}), tmp_path / "r.parquet"
        )
        for path in (tmp_path / "r.npz", tmp_path / "r.parquet"):
            if value < bound:
                assert read_records(path).names == (str(value).encode(),)
            else:
                with pytest.raises(BadInput, match=f"row 1: its id is the float .* below {bound}"):
                    read_records(path)
