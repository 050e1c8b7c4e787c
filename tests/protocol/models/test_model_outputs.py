from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from confide.protocol.models.scorer import score
from confide.protocol.scores.probabilities import check_probabilities
from tests.support.networks.graphs import (
    FLOAT,
    WEIGHTS,
    constant,
    in_batches,
    linear,
    model,
    node,
    one_by_one,
    proto,
    value,
)
from tests.support.networks.models import PLAIN, RECORDS, softmax

UNIFORM = np.full(3, 1 / 3, dtype=np.float32)


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


def test_every_type_of_numbers_is_cast_to_what_the_model_takes() -> None:
    """Integers and other floats, on either side, give the scores of the same numbers."""
    whole = np.array([[0, 1], [2, -3]])
    for kind in ("FLOAT", "DOUBLE", "INT64", "INT8"):
        entry = [value("x", getattr(onnx.TensorProto, kind), ["n", 2])]
        session = model(
            proto([node("Cast", ["x"], ["a"], to=FLOAT), *linear(entry="a")], inputs=entry)
        ).open()
        for given_as in (np.int64, np.float32, np.float64):
            found = one_by_one(session, whole.astype(given_as), 3)
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
        one_by_one(session, RECORDS, 3), softmax(RECORDS @ WEIGHTS), rtol=1e-5
    )


def test_features_of_another_shape_are_the_owners_mistake() -> None:
    """That the file has other features than the model takes depends on no record, and is said."""
    for vetted in (False, True):
        with pytest.raises(BadInput, match=r"shape \(3,\); the model accepts \(2,\)"):
            score(PLAIN, np.zeros((4, 3)), labels=3, vetted=vetted)


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
    expected = np.where(odd[:, None], UNIFORM, one_by_one(PLAIN.open(), RECORDS, 3))
    found = one_by_one(session, RECORDS, 3)
    assert np.array_equal(check_probabilities(found), expected)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["nan", "infinite", "negative", "sum", "raises"])
def test_batches_leave_the_other_records_alone(kind: str) -> None:
    """A vetted model that fails on some records of a batch still scores the others."""
    failing = on_predicate(kind)
    found = score(failing, RECORDS, labels=3, vetted=True)
    np.testing.assert_allclose(found, one_by_one(failing.open(), RECORDS, 3), rtol=1e-6)


def test_a_model_may_ignore_the_record() -> None:
    """A constant is a result as well, also where it is no node's."""
    row = np.array([[0.5, 0.25, 0.25]], dtype=np.float32)
    for nodes, constants in (
        ([node("Constant", [], ["p"], value=constant("p", row))], []),
        ([], [constant("p", row)]),
    ):
        session = model(proto(nodes, constants)).open()
        assert np.array_equal(one_by_one(session, RECORDS, 3), np.repeat(row, len(RECORDS), axis=0))


def test_more_labels_than_outputs_are_no_error() -> None:
    """A plan of another number of labels than a model returns, which does not declare how many,
    gets uniform vectors."""
    nodes = linear()
    nodes[-1].output[0] = "q"
    nodes.append(node("Compress", ["q", "all"], ["p"], axis=1))
    silent = model(proto(nodes, [constant("all", [True] * 3, np.bool_)]))
    for labels in (2, 3, 4):
        uniform = np.full((len(RECORDS), labels), 1 / labels, dtype=np.float32)
        expected = one_by_one(PLAIN.open(), RECORDS, 3) if labels == 3 else uniform
        for vetted in (False, True):
            found = score(silent, RECORDS, labels=labels, vetted=vetted)
            assert np.array_equal(found, expected)


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
    found = one_by_one(session, rows, 3)
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
    assert np.array_equal(found, in_batches(session, rows, 3))


IDENTITY = model(
    proto(
        [node("Identity", ["x"], ["p"])],
        inputs=[value("x", onnx.TensorProto.DOUBLE, ["n", 3])],
        outputs=[value("p", onnx.TensorProto.DOUBLE, None)],
    )
).open()
