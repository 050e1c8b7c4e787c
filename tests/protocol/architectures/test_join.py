"""A head and its backbone as one ONNX file."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

from confide.aggregator.campaigns.training_result import model_file
from confide.protocol.architectures.base import BuiltIn, canonical, scaled
from confide.protocol.architectures.export import predict_file, to_onnx
from confide.protocol.architectures.registry import built_in, read_architecture
from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from confide.protocol.models.results import clipped_rows
from tests.support.networks.graphs import FLOAT, constant, linear, model, node, proto, value
from tests.support.networks.heads import BACKBONE, INPUTS, PLAN, backbone, opset, outputs, stretched
from tests.support.networks.models import in_branch
from tests.support.networks.networks import drawn, loaded
from tests.support.training.learners import TRAINING

CENTRE = 0.4


def head(text: str = "head", *, features: int = INPUTS) -> BuiltIn:
    name, arguments = read_architecture(text)
    return built_in(name, canonical(arguments), features=features, outputs=3)


def expected(
    network: BuiltIn, weights: NDArray[np.float32], given: Model, features: NDArray[Any]
) -> NDArray[np.float64]:
    """The backbone in onnxruntime, then the head in torch."""
    inputs = clipped_rows(outputs(given, features, network.features))
    logits = loaded(network, weights)(torch.from_numpy(scaled(inputs, CENTRE)))
    found: NDArray[np.float64] = torch.softmax(logits, dim=1).detach().numpy()
    return found


def check(network: BuiltIn, given: Model, features: NDArray[Any]) -> None:
    """On the owner's path too, where the graph is checked and runs on one record at a time."""
    weights = drawn(network.size, 1)
    file = to_onnx(network, weights, centre=CENTRE, backbone=given.data)
    assert file == to_onnx(network, weights, centre=CENTRE, backbone=given.data)
    onnx.checker.check_model(onnx.ModelProto.FromString(file), full_check=True)
    wanted = expected(network, weights, given, features)
    assert np.allclose(outputs(Model.of(file), features, 3), wanted, atol=1e-5)
    assert np.allclose(predict_file(file, features), wanted, atol=1e-5)
    assert np.ptp(wanted, axis=0).max() > 0.01
    Model.of(file).open().accept(features.shape[1:], 3)


@pytest.mark.parametrize("text", ["head", "head hidden=8", "head hidden=8,5"])
def test_the_file_computes_backbone_then_head(text: str) -> None:
    check(head(text), BACKBONE, np.random.default_rng(2).uniform(-0.2, 1.2, (9, 4)))


@pytest.mark.parametrize("version", [11, 13, 18, 21])
def test_backbones_of_several_versions_are_accepted(version: int) -> None:
    given = backbone(opset=version)
    check(head(), given, np.random.default_rng(3).random((9, 4)))


@pytest.mark.parametrize("kind", [FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16])
def test_numbers_that_owners_clip_or_replace_are_those_of_the_file(kind: int) -> None:
    """Outside [0, 1], NaN and infinite; under names that the head's nodes have too; the last of
    two outputs."""
    features = np.random.default_rng(4).random((9, 2)).astype(np.float32)
    given = stretched(kind=kind)
    raw = outputs(given, features, 6)
    assert np.isnan(raw[:, 2:4]).any()
    assert np.isinf(raw[:, 4:]).all()
    assert (raw[:, :2] > 1).any()
    check(head(features=6), given, features)


def test_names_inside_branches_are_not_taken() -> None:
    """A backbone with a condition, in whose branch a value has a name of the head's."""
    nodes = in_branch([node("Identity", ["x"], ["head_features"]), node("Mul", ["x", "x"], ["q"])])
    given = model(proto([*nodes[:-1], node("Sigmoid", ["z"], ["p"])]))
    features = np.random.default_rng(5).uniform(-1, 1, (9, 2)).astype(np.float32)
    check(head(features=3), given, features)
    network = head(features=3)
    file = to_onnx(network, network.first_weights(), centre=CENTRE, backbone=given.data)
    graph = onnx.ModelProto.FromString(file).graph
    outer = {name for one in graph.node for name in one.output}
    inner = {
        name
        for one in graph.node
        for attribute in one.attribute
        for made in attribute.g.node
        for name in made.output
    }
    assert "head_features" in inner
    assert not outer & inner


def test_a_backbone_without_standard_operators_gets_them() -> None:
    given = model(
        proto(
            [
                node(
                    "Normalizer",
                    ["x"],
                    ["p"],
                    domain="ai.onnx.ml",
                    norm="L1",
                )
            ],
            domains=["ai.onnx.ml"],
        )
    )
    made = onnx.ModelProto.FromString(given.data)
    del made.opset_import[0]
    check(head(features=2), model(made), np.random.default_rng(6).random((9, 2)))


def test_a_head_is_not_exported_alone_or_on_another_model() -> None:
    """Nor does another network get a backbone."""
    network = head()
    weights = network.first_weights()
    with pytest.raises(BadInput, match="no backbone is given; accepted is the file"):
        model_file(PLAN, weights)
    with pytest.raises(BadInput, match=f"accepted is {BACKBONE.digest.hex()}"):
        model_file(PLAN, weights, backbone=stretched().data)
    assert model_file(PLAN, weights, backbone=BACKBONE.data) == to_onnx(
        network, weights, centre=0.0, backbone=BACKBONE.data
    )
    with pytest.raises(BadInput, match="the network has none"):
        model_file(TRAINING, np.zeros(15, dtype=np.float32), backbone=BACKBONE.data)


BAD: dict[str, tuple[bytes, str]] = {
    "no model": (b"none", "cannot be read as ONNX|has no output"),
    "empty": (b"", "has no output"),
    "old": (opset(BACKBONE, 10), "version 10 of ONNX's operators; accepted is 11"),
    "narrow": (stretched().data, "numbers, the inputs of the head"),
    "inferred": (model(proto(linear())).data, r"shape \[None, 3\]; accepted are rows of 5"),
    "flat": (
        model(
            proto(
                [node("ReduceSum", ["x", "one"], ["p"], keepdims=0)],
                [constant("one", [1], np.int64)],
                outputs=[value("p", FLOAT, ["n"])],
            )
        ).data,
        "accepted are rows of 5",
    ),
}


@pytest.mark.parametrize("name", list(BAD))
def test_backbones_that_do_not_fit_are_refused(name: str) -> None:
    file, message = BAD[name]
    network = head(features=5)
    with pytest.raises(BadInput, match=message):
        to_onnx(network, network.first_weights(), centre=0.5, backbone=file)


@pytest.mark.parametrize(
    ("text", "features"), [("head depth=3", 6), ("head hidden=0", 6), ("head", (1 << 13) + 1)]
)
def test_other_heads_are_refused(text: str, features: int) -> None:
    with pytest.raises(BadInput, match="accepted"):
        head(text, features=features)
