import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

from aggregator.keys import create_keys
from client.policy import TEMPLATE, read_policy
from client.records import model_digest, read_records
from protocol.errors import BadInput
from tests.owners import PLAN, PUBLIC, signed

ROOT = Path(__file__).parent.parent
PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.2, 0.2, 0.6]])
LABELS = np.array([0, 1, 2, 2])
IDS = np.array(["anna", "ben", "cleo", "dan"])
FEATURES = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [2.0, 1.0]], dtype=np.float32)
WEIGHTS = np.array([[0.5, -0.5, 0.0], [0.1, 0.2, 0.3]], dtype=np.float32)


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def write_npz(path: Path, features: bool) -> None:
    np.savez(path, labels=LABELS, **({"features": FEATURES} if features else {"probs": PROBS, "ids": IDS}))


def columns(features: bool) -> dict[str, list[Any]]:
    values, names = (FEATURES, ("a", "b")) if features else (PROBS, ("p0", "p1", "p2"))
    ids = {} if features else {"id": IDS.tolist()}
    return {**ids, "label": LABELS.tolist(), **{name: values[:, i].tolist() for i, name in enumerate(names)}}


def write_csv(path: Path, features: bool) -> None:
    table = columns(features)
    rows = zip(*table.values(), strict=True)
    path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")


def write_parquet(path: Path, features: bool) -> None:
    pq.write_table(pa.table(columns(features)), path)


WRITERS: dict[str, Callable[[Path, bool], None]] = {".npz": write_npz, ".csv": write_csv, ".parquet": write_parquet}


def write_onnx(path: Path) -> None:
    helper, proto = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Softmax", ["z"], ["p"], axis=1)],
        "linear",
        [helper.make_tensor_value_info("x", proto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("p", proto.FLOAT, ["n", 3])],
        [onnx.numpy_helper.from_array(WEIGHTS, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def write_torch(path: Path) -> None:
    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.from_numpy(WEIGHTS.copy()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x @ self.w, dim=1)

    rows = torch.export.Dim("rows")
    torch.export.save(torch.export.export(Linear(), (torch.zeros(4, 2),), dynamic_shapes=({0: rows},)), path)


@pytest.mark.parametrize("suffix", list(WRITERS))
def test_probabilities_are_read_from_every_format(suffix: str, tmp_path: Path) -> None:
    """npz, csv and parquet give the same records under the same names."""
    path = tmp_path / f"records{suffix}"
    WRITERS[suffix](path, False)
    found = read_records(path)
    np.testing.assert_allclose(found.scored, PROBS)
    assert found.labels.tolist() == LABELS.tolist()
    assert len(set(found.names)) == 4
    assert found.model is None
    write_npz(tmp_path / "same.npz", False)
    assert found.names == read_records(tmp_path / "same.npz").names


@pytest.mark.parametrize(("suffix", "write"), [(".onnx", write_onnx), (".pt2", write_torch)])
@pytest.mark.filterwarnings("ignore")
def test_features_are_scored_by_a_real_model(suffix: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    """An ONNX file and an exported torch program score the features, and the digest of the file comes along."""
    model, path = tmp_path / f"model{suffix}", tmp_path / "records.csv"
    write(model)
    write_csv(path, True)
    found = read_records(path, model=model)
    np.testing.assert_allclose(found.scored, softmax(FEATURES @ WEIGHTS), rtol=1e-5)
    assert found.model == model_digest(model)


def test_features_name_a_record_whatever_the_model_says(tmp_path: Path) -> None:
    """Without an id, equal rows are told apart, and probabilities or number formats make no new records of old ones."""
    names = []
    extras: tuple[dict[str, Any], ...] = ({}, {}, {"probs": PROBS})
    for kind, extra in zip((np.float32, np.float64, np.float64), extras, strict=True):
        np.savez(tmp_path / "r.npz", features=FEATURES.astype(kind), labels=LABELS, **extra)
        names.append(read_records(tmp_path / "r.npz").names)
    assert names[0] == names[1] == names[2]
    assert len(set(names[0])) == 4


def test_names_follow_the_id_column(tmp_path: Path) -> None:
    """With ids the order of rows and their content do not matter; twice the same id is refused."""
    path = tmp_path / "records.csv"
    path.write_text("id,label,p0,p1\nanna,0,0.9,0.1\nben,1,0.5,0.5\n")
    assert read_records(path).names == (b"anna", b"ben")
    path.write_text("id,label,p0,p1\nanna,0,0.9,0.1\nanna,1,0.5,0.5\n")
    with pytest.raises(BadInput, match="1 different names for 2 records"):
        read_records(path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.txt", "", "accepted are .npz, .csv and .parquet"),
        ("x.csv", "", "no header"),
        ("x.csv", "label,p0,p1\n0,0.5\n", "line 2"),
        ("x.csv", "p0,p1\n0.5,0.5\n", "missing: label"),
        ("x.csv", "id,label,p0,p1\n1,0,0.5,0.6\n", "sum to"),
        ("x.csv", "id,label,p0,p1\n1,2,0.5,0.5\n", "labels run from 2"),
        ("x.csv", "label,p0,p1\n0.5,0.5,0.5\n", "not whole numbers"),
        ("x.csv", "label,p0,p1\nzero,0.5,0.5\n", "cannot be read"),
        ("x.npz", "nothing", "cannot be read"),
        ("x.parquet", "nothing", "cannot be read"),
    ],
)
def test_unusable_records_are_refused_with_the_reason(name: str, content: str, says: str, tmp_path: Path) -> None:
    """The message names the file, what was found and what is accepted."""
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=says) as refused:
        read_records(tmp_path / name)
    assert name in str(refused.value)


def test_unusable_models_are_refused(tmp_path: Path) -> None:
    """Missing, of another kind, damaged."""
    write_csv(tmp_path / "r.csv", True)
    for name, content, says in (("m.bin", "x", "accepted are"), ("m.onnx", "x", "onnxruntime"), ("m.pt2", "x", "torch.export")):
        (tmp_path / name).write_text(content)
        with pytest.raises(BadInput, match=says):
            read_records(tmp_path / "r.csv", model=tmp_path / name)
    with pytest.raises(BadInput, match="does not exist"):
        read_records(tmp_path / "r.csv", model=tmp_path / "none.onnx")


def client(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "client.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)


def test_the_owner_is_led_from_init_to_explain(tmp_path: Path) -> None:
    """init writes a policy that reads, doctor finds all in order, explain refuses a stranger's plan and then explains it."""
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
    policy.write_text(policy.read_text().replace("aggregators = []", f'aggregators = ["{PUBLIC.hex()}"]'))
    refused = client("explain", plan, "--home", home)
    assert refused.returncode == 1
    assert "its epsilon is above `epsilon_per_campaign`" in refused.stdout
    policy.write_text(policy.read_text().replace("epsilon_per_campaign = 2.0", "epsilon_per_campaign = 4.0"))
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
def test_unusable_policies_are_refused_with_the_reason(old: str, new: str, says: str, tmp_path: Path) -> None:
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
    """A key that does not belong to the certificate beside it would be worse than none: exit code 2, nothing written."""
    create_keys(tmp_path / "new", address="localhost", now=datetime.now(UTC))
    assert len(list((tmp_path / "new").iterdir())) == 4
    assert create_keys(tmp_path / "new", address="localhost", now=datetime.now(UTC)) == []
    (tmp_path / "new" / "server.pem").unlink()
    with pytest.raises(BadInput, match=r"no server\.pem"):
        create_keys(tmp_path / "new", address="localhost", now=datetime.now(UTC))
