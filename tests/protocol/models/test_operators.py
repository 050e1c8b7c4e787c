from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from confide.protocol.errors import BadInput
from confide.protocol.models.operators import OPERATORS
from tests.support.networks.graphs import WEIGHTS, constant, linear, model, node, one_by_one, proto
from tests.support.networks.models import PLAIN, RECORDS, in_branch, softmax


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
    assert np.array_equal(one_by_one(session, RECORDS, 3), one_by_one(PLAIN.open(), RECORDS, 3))


def test_a_model_may_have_branches() -> None:
    """A condition whose branches obey the rules is accepted, so what is refused below is the
    branch's content."""
    session = model(
        proto(in_branch([node("Add", ["x", "one"], ["q"])], [constant("one", [1, 1])]))
    ).open()
    np.testing.assert_allclose(
        one_by_one(session, RECORDS, 3), softmax((RECORDS + 1) @ WEIGHTS), rtol=1e-5
    )


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
