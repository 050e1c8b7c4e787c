import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from confide.client.records.models import Model
from confide.client.records.operators import OPERATORS
from confide.protocol.errors import BadInput
from confide.protocol.scores.classification import check_probabilities
from tests.support.graphs import (
    FLOAT,
    WEIGHTS,
    constant,
    linear,
    model,
    network,
    node,
    of_bytes,
    proto,
    value,
)

RECORDS = np.random.default_rng(3).normal(size=(40, 2)).astype(np.float32)
UNIFORM = np.full(3, 1 / 3, dtype=np.float32)


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


PLAIN = model(proto(linear()))


# Reading


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


# A function of one record


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
    assert len(np.unique(copies.batched(RECORDS, 3), axis=0)) == 1
    found = copies.one_by_one(RECORDS, 3)
    alone = np.concatenate([copies.one_by_one(RECORDS[i : i + 1], 3) for i in range(len(RECORDS))])
    assert np.array_equal(found, alone)
    assert np.array_equal(found, PLAIN.open().one_by_one(RECORDS, 3))


@given(st.permutations(range(12)))
@settings(max_examples=20)
def test_the_order_of_records_does_not_matter(order: list[int]) -> None:
    """Scoring a permutation gives the permuted scores, to the bit."""
    session = PLAIN.open()
    assert np.array_equal(
        session.one_by_one(RECORDS[order], 3), session.one_by_one(RECORDS[:12], 3)[order]
    )


def normalisation(opset: int) -> Any:
    """A normalisation in training mode whose running mean is the output."""
    newer = opset >= 14
    outputs = ["y", "mean", "variance", *([] if newer else ["saved", "saved2"])]
    names = {"s": [1, 1], "b": [0, 0], "m": [0, 0], "v": [1, 1]}
    return proto(
        [
            node(
                "BatchNormalization",
                ["x", *names],
                outputs,
                momentum=0.5,
                **({"training_mode": 1} if newer else {}),
            ),
            node("Reshape", ["mean", "row"], ["p"]),
        ],
        [
            constant("row", [1, 2], np.int64),
            *(constant(name, content) for name, content in names.items()),
        ],
        opset=opset,
    )


@pytest.mark.parametrize("opset", [9, 17])
def test_normalisation_in_training_mode_is_refused_because_it_remembers(opset: int) -> None:
    """onnxruntime keeps the running mean from call to call, so one record's result would speak of
    those before it."""
    made = normalisation(opset)
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    first, _, again = (
        session.run(None, {"x": row})[0] for row in (RECORDS[:1], RECORDS[1:2], RECORDS[:1])
    )
    assert not np.array_equal(first, again)
    with pytest.raises(BadInput, match="BatchNormalization in training mode"):
        model(made).open()


def test_layers_of_training_are_accepted_in_inference() -> None:
    """Dropout and normalisation that an exporter left in place are functions of their inputs, and
    run."""
    names = {"s": [1, 1], "b": [0, 0], "m": [0, 0], "v": [1, 1]}
    session = model(
        proto(
            [
                node("Dropout", ["x", "ratio"], ["d"]),
                node("BatchNormalization", ["d", *names], ["y"], epsilon=0.0),
                *linear(entry="y"),
            ],
            [constant("ratio", 0.5), *(constant(name, content) for name, content in names.items())],
        )
    ).open()
    assert np.array_equal(session.one_by_one(RECORDS, 3), PLAIN.open().one_by_one(RECORDS, 3))


# What a graph may not hold


def in_branch(nodes: list[Any], constants: list[Any] | None = None) -> list[Any]:
    """A condition on the record whose branch holds the nodes, from `x` to `q`."""
    then = onnx.helper.make_graph(nodes, "then", [], [value("q", FLOAT, None)], constants or [])
    other = onnx.helper.make_graph(
        [node("Identity", ["x"], ["r"])], "else", [], [value("r", FLOAT, None)]
    )
    return [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["c"], to=onnx.TensorProto.BOOL),
        node("If", ["c"], ["i"], then_branch=then, else_branch=other),
        *linear(entry="i"),
    ]


def test_a_model_may_have_branches() -> None:
    """A condition whose branches obey the rules is accepted, so what is refused below is the
    branch's content."""
    session = model(
        proto(in_branch([node("Add", ["x", "one"], ["q"])], [constant("one", [1, 1])]))
    ).open()
    np.testing.assert_allclose(
        session.one_by_one(RECORDS, 3), softmax((RECORDS + 1) @ WEIGHTS), rtol=1e-5
    )


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


RANDOM: dict[str, tuple[list[str], dict[str, Any]]] = {
    "RandomNormal": ([], {"shape": [1, 2]}),
    "RandomUniform": ([], {"shape": [1, 2]}),
    "RandomNormalLike": (["x"], {}),
    "RandomUniformLike": (["x"], {}),
    "Bernoulli": (["x"], {}),
    "Multinomial": (["x"], {}),
}


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("operator", list(RANDOM))
def test_random_operators_are_refused(operator: str, hidden: bool) -> None:
    """A generator that advances by an amount depending on one record changes the results of those
    after it."""
    entries, attributes = RANDOM[operator]
    drawn = node(operator, entries, ["q"], **attributes)
    made = proto(in_branch([drawn]) if hidden else [drawn, *linear()])
    with pytest.raises(BadInput, match=rf"operator {operator};"):
        model(made).open()


@pytest.mark.parametrize("entry", ["true", "c"])
def test_dropout_in_training_mode_is_refused(entry: str) -> None:
    """Whether training mode is a constant or follows from the record."""
    made = proto(
        [
            node("ReduceSum", ["x"], ["sum"], keepdims=0),
            node("Cast", ["sum"], ["c"], to=onnx.TensorProto.BOOL),
            node("Dropout", ["x", "ratio", entry], ["d"]),
            *linear(entry="d"),
        ],
        [constant("ratio", 0.5), constant("true", True, np.bool_)],
    )
    with pytest.raises(BadInput, match="Dropout in training mode"):
        model(made).open()


@pytest.mark.parametrize(
    ("operator", "domain"),
    [
        ("EPContext", "com.microsoft"),
        ("Anything", "my.ops"),
        ("Adam", "ai.onnx.preview.training"),
        ("Loop", ""),
        ("MemcpyToHost", ""),
        ("Affine", ""),
        ("Relu", "ai.onnx.ml"),
        ("TreeEnsembleRegressor", ""),
        ("SequenceMap", ""),
    ],
)
def test_operators_outside_the_list_are_refused(operator: str, domain: str) -> None:
    """Other domains may name files or code; onnxruntime also runs operators that are in no
    standard, and loops without end."""
    used = node(operator, ["x"], ["q"], domain=domain)
    for nodes in ([used, *linear()], in_branch([used])):
        with pytest.raises(BadInput, match=rf"operator .*{operator};"):
            model(proto(nodes)).open()


def test_an_import_of_other_operators_is_refused() -> None:
    """Even if no node uses them."""
    with pytest.raises(BadInput, match=r"operators of 'my\.ops'"):
        model(proto(linear(), domains=["my.ops"])).open()


def test_the_list_holds_standard_operators_made_of_listed_ones() -> None:
    """Each has a schema in ONNX; and where ONNX defines it by others, which onnxruntime may put in
    its place, these are listed.

    Range is defined by a Loop, but onnxruntime has its own for every type of it that it takes.
    """
    schemas: list[Any] = [
        schema
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name in OPERATORS.get(schema.domain, ())
    ]
    assert {schema.name for schema in schemas} == OPERATORS[""] | OPERATORS["ai.onnx.ml"]
    bodies = [
        schema.function_body for schema in schemas if schema.has_function and schema.name != "Range"
    ]
    assert len(bodies) > 10
    for body in bodies:
        assert {inner.op_type for inner in body.node} <= OPERATORS[""]


# What is not a model


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
    assert np.array_equal(later.one_by_one(RECORDS, 3), PLAIN.open().one_by_one(RECORDS, 3))


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
        found = session.one_by_one(RECORDS[:2], 3)
    except BadInput:
        return
    check_probabilities(found)


@pytest.mark.parametrize(
    ("inputs", "outputs", "says"),
    [
        ([value("x", FLOAT, ["n", 2]), value("y", FLOAT, [1])], None, "inputs are x"),
        ([value("x", onnx.TensorProto.STRING, ["n", 2])], None, "one tensor of numbers"),
        ([value("x", FLOAT, [5, 2])], None, r"shape \[5, 2\]"),
        ([value("x", FLOAT, [])], None, r"shape \[\]"),
        ([value("x", FLOAT, None)], None, r"shape \[\]"),
        (
            None,
            [value("p", FLOAT, None), value("top", onnx.TensorProto.INT64, None)],
            "last output is tensor\\(int64\\)",
        ),
    ],
)
def test_other_inputs_and_outputs_are_refused(inputs: Any, outputs: Any, says: str) -> None:
    """One tensor of numbers goes in, a record or any number of them at a time, and floats come out
    last."""
    text = inputs is not None and inputs[0].type.tensor_type.elem_type == onnx.TensorProto.STRING
    first = node("Cast", ["x"], ["a"], to=FLOAT) if text else node("Expand", ["x", "pair"], ["a"])
    nodes = [first, *linear(entry="a"), node("ArgMax", ["p"], ["top"], axis=1)]
    with pytest.raises(BadInput, match=says):
        model(
            proto(nodes, [constant("pair", [1, 2], np.int64)], inputs=inputs, outputs=outputs)
        ).open()


# What comes out


def test_every_type_of_numbers_is_cast_to_what_the_model_takes() -> None:
    """Integers and other floats, on either side, give the scores of the same numbers."""
    whole = np.array([[0, 1], [2, -3]])
    for kind in ("FLOAT", "DOUBLE", "INT64", "INT8"):
        entry = [value("x", getattr(onnx.TensorProto, kind), ["n", 2])]
        session = model(
            proto([node("Cast", ["x"], ["a"], to=FLOAT), *linear(entry="a")], inputs=entry)
        ).open()
        for given_as in (np.int64, np.float32, np.float64):
            found = session.one_by_one(whole.astype(given_as), 3)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, softmax(whole @ WEIGHTS), rtol=1e-5)


def test_the_last_output_counts() -> None:
    """Classifiers of scikit-learn give a label and then probabilities."""
    classifier = node(
        "LinearClassifier",
        ["x"],
        ["label", "p"],
        domain="ai.onnx.ml",
        classlabels_ints=[0, 1, 2],
        coefficients=WEIGHTS.T.ravel().tolist(),
        intercepts=[0.0, 0.0, 0.0],
        multi_class=1,
        post_transform="SOFTMAX",
    )
    outputs = [value("label", onnx.TensorProto.INT64, ["n"]), value("p", FLOAT, ["n", 3])]
    session = model(proto([classifier], outputs=outputs, domains=["ai.onnx.ml"])).open()
    np.testing.assert_allclose(
        session.one_by_one(RECORDS, 3), softmax(RECORDS @ WEIGHTS), rtol=1e-5
    )


def test_features_of_another_shape_are_the_owners_mistake() -> None:
    """That the file has other features than the model takes depends on no record, and is said."""
    for call in (PLAIN.open().one_by_one, PLAIN.open().batched):
        with pytest.raises(BadInput, match=r"shape \(3,\); the model accepts \(2,\)"):
            call(np.zeros((4, 3)), 3)


def branch(operator: str) -> Any:
    return onnx.helper.make_graph(
        [node(operator, ["ok"], [operator])], operator, [], [value(operator, FLOAT, None)]
    )


def on_predicate(kind: str) -> Model:
    """A model that does something else to records whose first feature is above 0."""
    ones, three = constant("one", 1, np.int64), constant("three", [3], np.int64)
    positive = [
        node("Slice", ["x", "begin", "end", "last"], ["first"]),
        node("Greater", ["first", "nil"], ["yes"]),
        node("Cast", ["yes"], ["flag"], to=FLOAT),
        node("Cast", ["yes"], ["count"], to=onnx.TensorProto.INT64),
        node("Squeeze", ["count"], ["scalar"]),
        *linear()[:-1],
        node("Softmax", ["z"], ["ok"], axis=1),
    ]
    endings = {
        "nan": [
            node("Div", ["flag", "nil"], ["inf"]),
            node("Mul", ["inf", "nil"], ["odd"]),
            node("Where", ["yes", "odd", "ok"], ["p"]),
        ],
        "infinite": [
            node("Div", ["flag", "nil"], ["inf"]),
            node("Where", ["yes", "inf", "ok"], ["p"]),
        ],
        "negative": [node("Neg", ["ok"], ["odd"]), node("Where", ["yes", "odd", "ok"], ["p"])],
        "sum": [node("Add", ["ok", "flag"], ["p"])],
        "raises": [
            node("Mul", ["scalar", "far"], ["index"]),
            node("Gather", ["ok", "index"], ["row"], axis=0),
            node("Unsqueeze", ["row", "begin"], ["p"]),
        ],
        "wider": [
            node("Add", ["scalar", "one"], ["times"]),
            node("Unsqueeze", ["times", "begin"], ["times1"]),
            node("Concat", ["end", "times1"], ["repeats"], axis=0),
            node("Tile", ["ok", "repeats"], ["p"]),
        ],
        "taller": [
            node("Add", ["scalar", "one"], ["times"]),
            node("Unsqueeze", ["times", "begin"], ["times1"]),
            node("Concat", ["times1", "end"], ["repeats"], axis=0),
            node("Tile", ["ok", "repeats"], ["p"]),
        ],
        "turned": [
            node("Mul", ["scalar", "two"], ["twice"]),
            node("Add", ["twice", "one"], ["high"]),
            node("Sub", ["three", "twice"], ["wide"]),
            node("Unsqueeze", ["high", "begin"], ["high1"]),
            node("Concat", ["high1", "wide"], ["turned"], axis=0),
            node("Reshape", ["ok", "turned"], ["p"]),
        ],
        "flat": [
            node("Squeeze", ["yes"], ["c"]),
            node("If", ["c"], ["p"], then_branch=branch("Squeeze"), else_branch=branch("Identity")),
        ],
        "memory": [
            node("Mul", ["scalar", "far"], ["size"]),
            node("Unsqueeze", ["size", "begin"], ["size1"]),
            node("ConstantOfShape", ["size1"], ["much"]),
            node("ReduceSum", ["much"], ["none"], keepdims=0),
            node("Add", ["ok", "none"], ["p"]),
        ],
    }
    constants = [
        ones,
        three,
        constant("begin", [0], np.int64),
        constant("end", [1], np.int64),
        constant("last", [1], np.int64),
        constant("nil", 0),
        constant("far", 2**60, np.int64),
        constant("two", 2, np.int64),
    ]
    return model(proto([*positive, *endings[kind]], constants))


@pytest.mark.parametrize(
    "kind",
    ["nan", "infinite", "negative", "sum", "raises", "wider", "taller", "turned", "flat", "memory"],
)
def test_a_record_without_a_usable_result_counts_as_uniform(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Records on which the model misbehaves are uniform, the others as they are, nothing is raised
    and nothing printed."""
    session = on_predicate(kind).open()
    odd = RECORDS[:, 0] > 0
    assert 0 < odd.sum() < len(odd)
    expected = np.where(odd[:, None], UNIFORM, PLAIN.open().one_by_one(RECORDS, 3))
    found = session.one_by_one(RECORDS, 3)
    assert np.array_equal(check_probabilities(found), expected)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["nan", "infinite", "negative", "sum", "raises"])
def test_batches_leave_the_other_records_alone(kind: str) -> None:
    """A vetted model that fails on some records of a batch still scores the others."""
    session = on_predicate(kind).open()
    np.testing.assert_allclose(
        session.batched(RECORDS, 3), session.one_by_one(RECORDS, 3), rtol=1e-6
    )


def test_a_model_may_ignore_the_record() -> None:
    """A constant is a result as well, also where it is no node's."""
    row = np.array([[0.5, 0.25, 0.25]], dtype=np.float32)
    for nodes, constants in (
        ([node("Constant", [], ["p"], value=constant("p", row))], []),
        ([], [constant("p", row)]),
    ):
        session = model(proto(nodes, constants)).open()
        assert np.array_equal(session.one_by_one(RECORDS, 3), np.repeat(row, len(RECORDS), axis=0))


def test_more_labels_than_outputs_are_no_error() -> None:
    """A plan of another number of labels than the model's gets uniform vectors."""
    for labels in (2, 4):
        for call in (PLAIN.open().one_by_one, PLAIN.open().batched):
            assert np.array_equal(
                call(RECORDS, labels), np.full((len(RECORDS), labels), 1 / labels, dtype=np.float32)
            )


SIMPLEX = st.integers(0, 1024).flatmap(
    lambda a: st.integers(0, 1024 - a).map(lambda b: [a / 1024, b / 1024, (1024 - a - b) / 1024])
)


@given(
    arrays(np.float64, (5, 3), elements=st.floats(width=64) | st.floats(0, 1, width=64)),
    st.lists(SIMPLEX, min_size=5, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.floats(-2e-3, 2e-3),
)
@settings(max_examples=200)
def test_whatever_comes_out_is_made_valid(
    odd: Any, good: Any, which: list[bool], shift: float
) -> None:
    """Any floats of a model become probabilities: rows that are such stay as they are, clearly
    other rows become uniform."""
    session = IDENTITY
    rows = np.where(np.array(which)[:, None], odd, np.array(good) * (1 + shift))
    found = session.one_by_one(rows, 3)
    check_probabilities(found)
    with np.errstate(over="ignore"):
        singles = rows.astype(np.float32)
    for row, result in zip(singles, found, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            off = abs(row.sum(dtype=np.float64) - 1)
        if np.isfinite(row).all() and row.min() >= 0 and off < 0.99e-3:
            assert np.array_equal(row, result)
        elif not off < 1.01e-3 or row.min() < 0:
            assert np.array_equal(result, UNIFORM)
    assert np.array_equal(found, session.batched(rows, 3))


IDENTITY = model(
    proto(
        [node("Identity", ["x"], ["p"])],
        inputs=[value("x", onnx.TensorProto.DOUBLE, ["n", 3])],
        outputs=[value("p", onnx.TensorProto.DOUBLE, None)],
    )
).open()


def test_one_by_one_equals_batches_to_the_bit() -> None:
    """On a network of one hidden layer both ways give the same bits, also beyond one batch; no
    records give no rows."""
    records = np.random.default_rng(8).normal(size=(5000, 16)).astype(np.float32)
    session = network().open()
    found = session.one_by_one(records, 26)
    assert np.array_equal(found, session.batched(records, 26))
    assert len(np.unique(found, axis=0)) == len(records)
    for call in (session.one_by_one, session.batched):
        assert call(records[:0], 26).shape == (0, 26)


def test_a_model_of_one_record_at_a_time_is_accepted() -> None:
    """A graph exported for exactly one record is called so, vetted or not."""
    session = model(proto(linear(), inputs=[value("x", FLOAT, [1, 2])])).open()
    for call in (session.one_by_one, session.batched):
        assert np.array_equal(call(RECORDS, 3), PLAIN.open().one_by_one(RECORDS, 3))


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
        Model.read(tmp_path / "net.onnx").open().one_by_one(images, 5), expected, rtol=1e-5
    )
