import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from confide.protocol.models.scorer import score
from tests.support.networks.graphs import (
    FLOAT,
    constant,
    in_batches,
    linear,
    model,
    network,
    node,
    one_by_one,
    proto,
    value,
)
from tests.support.networks.models import PLAIN, RECORDS


def test_a_model_is_its_bytes_and_their_digest(tmp_path: Path) -> None:
    """Reading hashes the bytes and parses nothing; a digest of other bytes is refused."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"not a model")
    found = Model.read(path)
    path.unlink()
    assert (found.data, found.digest) == (b"not a model", hashlib.sha256(b"not a model").digest())
    with pytest.raises(BadInput, match="SHA-256"):
        Model(b"other bytes", found.digest)


class Payload:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_torch_program_is_refused_without_being_opened(tmp_path: Path) -> None:
    """A .pt2 file may run code when it is loaded, so not even its existence is looked up;
    unpickled, this one does run."""
    trace, program = tmp_path / "trace", tmp_path / "m.pt2"
    program.write_bytes(pickle.dumps(Payload(trace)))
    for path in (program, tmp_path / "none.pt2"):
        with pytest.raises(BadInput, match=r"runs code .* export it to \.onnx"):
            Model.read(path)
    assert not trace.exists()
    pickle.loads(program.read_bytes())
    assert trace.exists()


@pytest.mark.parametrize(
    ("name", "says"), [("m.bin", "accepted is .onnx"), ("none.onnx", "cannot be read")]
)
def test_other_files_are_refused(name: str, says: str, tmp_path: Path) -> None:
    """Another ending, or no such file: the message says which."""
    with pytest.raises(BadInput, match=says):
        Model.read(tmp_path / name)


def test_a_graph_cannot_copy_one_record_over_the_others() -> None:
    """A graph that gives all rows the first one's result does so in a batch, and not when each
    record is scored by itself."""
    copies = model(
        proto(
            [
                node("Gather", ["x", "zero"], ["first"], axis=0),
                node("Shape", ["x"], ["shape"]),
                node("Expand", ["first", "shape"], ["all"]),
                *linear(entry="all"),
            ],
            [constant("zero", [0], np.int64)],
        )
    ).open()
    assert len(np.unique(in_batches(copies, RECORDS, 3), axis=0)) == 1
    found = one_by_one(copies, RECORDS, 3)
    alone = np.concatenate([one_by_one(copies, RECORDS[i : i + 1], 3) for i in range(len(RECORDS))])
    assert np.array_equal(found, alone)
    assert np.array_equal(found, one_by_one(PLAIN.open(), RECORDS, 3))


@given(st.permutations(range(12)))
@settings(max_examples=20)
def test_the_order_of_records_does_not_matter(order: list[int]) -> None:
    """Scoring a permutation gives the permuted scores, to the bit."""
    session = PLAIN.open()
    assert np.array_equal(
        one_by_one(session, RECORDS[order], 3), one_by_one(session, RECORDS[:12], 3)[order]
    )


def test_one_by_one_equals_batches_to_the_bit() -> None:
    """On a network of one hidden layer both ways give the same bits, also beyond one batch; no
    records give no rows."""
    records = np.random.default_rng(8).normal(size=(5000, 16)).astype(np.float32)
    found = one_by_one(network().open(), records, 26)
    assert np.array_equal(found, in_batches(network().open(), records, 26))
    assert len(np.unique(found, axis=0)) == len(records)
    for vetted in (False, True):
        assert np.array_equal(found, score(network(), records, labels=26, vetted=vetted))
        assert score(network(), records[:0], labels=26, vetted=vetted).shape == (0, 26)


def test_a_model_of_one_record_at_a_time_is_accepted() -> None:
    """A graph exported for exactly one record is called so, vetted or not."""
    single = model(proto(linear(), inputs=[value("x", FLOAT, [1, 2])]))
    for vetted in (False, True):
        found = score(single, RECORDS, labels=3, vetted=vetted)
        assert np.array_equal(found, one_by_one(PLAIN.open(), RECORDS, 3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_torch_exports_is_accepted(tmp_path: Path) -> None:
    """A convolutional network with normalisation and dropout, exported by torch, scores as it does
    in torch."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(36, 5),
        torch.nn.Softmax(dim=1),
    ).eval()
    images = np.random.default_rng(1).normal(size=(6, 1, 8, 8)).astype(np.float32)
    torch.onnx.export(
        net,
        (torch.from_numpy(images[:1]),),
        str(tmp_path / "net.onnx"),
        dynamo=False,
        dynamic_axes={"x": {0: "n"}},
        input_names=["x"],
    )
    with torch.no_grad():
        expected = net(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(
        one_by_one(Model.read(tmp_path / "net.onnx").open(), images, 5), expected, rtol=1e-5
    )
