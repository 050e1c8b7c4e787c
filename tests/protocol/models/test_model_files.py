from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from confide.protocol.scores.probabilities import check_probabilities
from tests.support.networks.graphs import constant, linear, model, node, of_bytes, one_by_one, proto
from tests.support.networks.models import PLAIN, RECORDS, in_branch


def outside(name: str, *, location: str = "records.bin", marked: bool = True) -> Any:
    """A tensor whose values are in a file beside the model."""
    tensor = constant(name, [0, 0])
    tensor.ClearField("raw_data")
    if marked:
        tensor.data_location = onnx.TensorProto.EXTERNAL
    if location:
        tensor.external_data.add(key="location", value=location)
    return tensor


def sparse(values: Any) -> Any:
    return onnx.helper.make_sparse_tensor(values, constant("at", [0, 1], np.int64), [2])


def with_function(made: Any) -> Any:
    """The model with a function of its own that holds an outside tensor."""
    body = [node("Constant", [], ["v"], value=outside("t"))]
    made.functions.append(
        onnx.helper.make_function(
            "", "Softmax2", [], ["v"], body, [onnx.helper.make_opsetid("", 17)]
        )
    )
    return made


def with_training(made: Any) -> Any:
    made.training_info.add().algorithm.initializer.append(outside("t"))
    return made


PLACES: dict[str, Callable[[], Any]] = {
    "initializer": lambda: proto(
        [node("Add", ["x", "t"], ["a"]), *linear(entry="a")], [outside("t")]
    ),
    "marked without place": lambda: proto(linear(), [outside("t", location="")]),
    "place without mark": lambda: proto(linear(), [outside("t", marked=False)]),
    "address in memory": lambda: proto(linear(), [outside("t", location="*/_ORT_MEM_ADDR_/*")]),
    "constant": lambda: proto([node("Constant", [], ["t"], value=outside("t")), *linear()]),
    "sparse constant": lambda: proto(
        [node("Constant", [], ["t"], sparse_value=sparse(outside("t"))), *linear()]
    ),
    "list of tensors": lambda: proto(
        [node("Constant", [], ["t"], extra=[outside("a"), outside("b")]), *linear()]
    ),
    "initializer of a branch": lambda: proto(
        in_branch([node("Add", ["x", "t"], ["q"])], [outside("t")])
    ),
    "branch of a branch": lambda: proto(
        in_branch(
            [
                *in_branch([node("Add", ["x", "t"], ["q"])], [outside("t")])[:-3],
                node("Identity", ["i"], ["q"]),
            ]
        )
    ),
    "function": lambda: with_function(proto(linear())),
    "training": lambda: with_training(proto(linear())),
}


@pytest.mark.parametrize("place", list(PLACES))
def test_weights_outside_the_file_are_refused_wherever_they_hide(
    place: str, tmp_path: Path
) -> None:
    """A tensor may name any file beside the model, such as the records, or an address; none is
    accepted in any part."""
    (tmp_path / "records.bin").write_bytes(np.array([7, 7], dtype=np.float32).tobytes())
    (tmp_path / "m.onnx").write_bytes(PLACES[place]().SerializeToString())
    with pytest.raises(BadInput, match=r"kept outside the file|functions or training steps"):
        Model.read(tmp_path / "m.onnx").open()


def test_a_sparse_initializer_outside_the_file_is_refused() -> None:
    """Sparse tensors are made of tensors, which may lie outside as well."""
    made = proto(linear())
    made.graph.sparse_initializer.append(sparse(outside("t")))
    with pytest.raises(BadInput, match="kept outside the file"):
        model(made).open()


def message(number: int, content: bytes) -> bytes:
    """A field of protobuf with a length."""
    size, digits = len(content), b""
    while size >= 128:
        digits, size = digits + bytes([size % 128 + 128]), size // 128
    return bytes([number * 8 + 2]) + digits + bytes([size]) + content


def test_the_runtimes_own_format_is_refused() -> None:
    """Bytes can be ONNX, by a field nobody knows, and onnxruntime's format, by a mark at byte 4;
    the mark decides."""
    both = message(15, b"..ORTM") + PLAIN.data
    assert both[4:8] == b"ORTM"
    assert onnx.ModelProto.FromString(both).graph.output[0].name == "p"
    with pytest.raises(BadInput, match="own format"):
        of_bytes(both).open()
    later = of_bytes(message(15, b".......ORTM") + PLAIN.data).open()
    assert np.array_equal(one_by_one(later, RECORDS, 3), one_by_one(PLAIN.open(), RECORDS, 3))


def nested(depth: int) -> bytes:
    """A graph in an attribute of a node of a graph in an attribute, and so on."""
    inner = b""
    for _ in range(depth):
        inner = message(1, message(5, message(6, inner)))
    return message(7, inner)


@pytest.mark.parametrize(
    "data",
    [b"", b"x", bytes(64), PLAIN.data[:-5], nested(10), nested(5000), message(7, b"\xff" * 20)],
    ids=range(7),
)
def test_bytes_that_are_no_model_are_refused(data: bytes) -> None:
    """Empty, damaged, cut, without outputs, or nested deeper than protobuf reads."""
    with pytest.raises(BadInput, match=r"mine: .*accepted is ONNX"):
        of_bytes(data).open("mine")


def test_text_that_is_not_utf8_is_refused() -> None:
    """A name that Python cannot read is no reason to fail in another way."""
    with pytest.raises(BadInput):
        of_bytes(PLAIN.data.replace(b"MatMul", b"Mat\xff\xfful")).open()


@given(st.binary(max_size=200), st.integers(0, len(PLAIN.data)))
@settings(max_examples=300)
def test_damage_never_raises_anything_else(noise: bytes, at: int) -> None:
    """Bytes overwritten anywhere in a model give a model, or a refusal."""
    data = PLAIN.data[:at] + noise + PLAIN.data[at + len(noise) :]
    try:
        session = of_bytes(data).open()
        found = one_by_one(session, RECORDS[:2], 3)
    except BadInput:
        return
    check_probabilities(found)
