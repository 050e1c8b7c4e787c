import subprocess
import sys
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.keys import create_keys
from confide.client.policy import TEMPLATE, read_policy
from confide.client.records.reader import Records, normal_id, read_records
from confide.protocol.errors import BadInput
from tests.support.owners import PLAN, PUBLIC, signed
from tests.support.places import ROOT

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
    values, other = (found.features, found.probs) if features else (found.probs, found.features)
    assert values is not None
    np.testing.assert_allclose(values, FEATURES if features else PROBS)
    assert other is None
    assert found.labels.tolist() == LABELS.tolist()
    assert found.names == (b"anna", b"ben", b"cleo", b"dan")
    assert (found.model, found.persons) == (None, None)


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
    assert found.labels.tolist() == [-4, 2, 1000000]
    assert found.labels.dtype == np.int64
    extremes = np.array([-(2**63), 2**63 - 1])
    np.savez(tmp_path / "r.npz", id=[1, 2], label=extremes, probs=np.full((2, 2), 0.5))
    assert np.array_equal(read_records(tmp_path / "r.npz").labels, extremes)


def test_probabilities_are_put_in_the_order_of_labels(tmp_path: Path) -> None:
    """Columns p0, p1, ... may stand in any order."""
    (tmp_path / "r.csv").write_text("p1,label,p2,p0,id\n0.2,0,0.1,0.7,x\n")
    found = read_records(tmp_path / "r.csv").probs
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


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (
            {"id": pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)])},
            "row 1: its id is of type datetime",
        ),
        ({"id": pa.array(["a", None])}, "row 2: its id is missing"),
        ({"a": pa.array([[1.0, 2.0], [3.0, 4.0]])}, "columns of lists"),
        ({"a": pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)])}, "cannot be read"),
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
    with pytest.raises(BadInput, match="an integer a record"):
        Records((b"a",), None, np.array([0.5]))


def client(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "confide.client.cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )


def test_the_owner_is_led_from_init_to_explain(tmp_path: Path) -> None:
    """init writes a policy that reads, doctor finds all in order, explain refuses a stranger's plan
    and then explains it."""
    home, plan = tmp_path / "home", tmp_path / "plan.bin"
    assert client("init", "--home", home).returncode == 0
    assert (home / "secret.key").stat().st_mode & 0o077 == 0
    secret = (home / "secret.key").read_bytes()
    assert "kept" in client("init", "--home", home).stdout
    assert (home / "secret.key").read_bytes() == secret
    assert client("doctor", "--home", home).returncode == 0
    plan.write_bytes(signed(PLAN))
    stranger = client("explain", plan, "--home", home)
    assert stranger.returncode == 1
    assert PUBLIC.hex() in stranger.stdout
    policy = home / "policy.toml"
    assert client("allow", "aggregator", PUBLIC.hex(), "--home", home, "--yes").returncode == 0
    assert client("allow", "model", PLAN.model.hex(), "--home", home, "--yes").returncode == 0
    refused = client("explain", plan, "--home", home)
    assert refused.returncode == 1
    assert "its epsilon is above `epsilon_per_campaign`" in refused.stdout
    policy.write_text(
        policy.read_text().replace("epsilon_per_campaign = 2.0", "epsilon_per_campaign = 4.0")
    )
    allowed = client("explain", plan, "--home", home)
    assert allowed.returncode == 0
    assert "one bit" in allowed.stdout
    assert "Under your policy this plan is allowed." in allowed.stdout
    status = client("status", "--home", home)
    assert "0 records have answered" in status.stdout


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("minimum_group = 20", "", "missing: minimum_group"),
        ("minimum_group = 20", "minimum_group = 0", "minimum_group is 0"),
        ("minimum_group = 20", "minimum_group = true", "minimum_group is True"),
        ("minimum_group = 20", "minimum_group = 20\nextra = 1", "unknown: extra"),
        ('methods = ["bits"]', 'methods = ["votes"]', "accepted: labels, bits"),
        ("aggregators = []", 'aggregators = ["zz"]', "64 hexadecimal digits"),
        ("aggregators = []", 'aggregators = ["00"]', "64 hexadecimal digits"),
        ("epsilon_per_record = 4.0", "epsilon_per_record = 0.0", "epsilon is 0.0"),
        ("epsilon_per_record = 4.0", "epsilon_per_record = ", "cannot be read as TOML"),
    ],
)
def test_unusable_policies_are_refused_with_the_reason(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    """The message names the file and the clause."""
    path = tmp_path / "policy.toml"
    path.write_text(TEMPLATE.replace(old, new))
    with pytest.raises(BadInput, match=says) as refused:
        read_policy(path)
    assert str(path) in str(refused.value)


def test_a_home_that_is_not_there_is_exit_code_2(tmp_path: Path) -> None:
    """status without init says what to do, in one line."""
    run = client("status", "--home", tmp_path / "none")
    assert run.returncode == 2
    assert "confide-client init" in run.stderr
    assert run.stderr.count("\n") == 1


def test_half_a_set_of_certificates_is_not_completed(tmp_path: Path) -> None:
    """A key that does not belong to the certificate beside it would be worse than none: exit code
    2, nothing written."""
    create_keys(tmp_path / "new", address="localhost", now=datetime.now(UTC))
    assert len(list((tmp_path / "new").iterdir())) == 4
    assert create_keys(tmp_path / "new", address="localhost", now=datetime.now(UTC)) == []
    (tmp_path / "new" / "server.pem").unlink()
    with pytest.raises(BadInput, match=r"no server\.pem"):
        create_keys(tmp_path / "new", address="localhost", now=datetime.now(UTC))
