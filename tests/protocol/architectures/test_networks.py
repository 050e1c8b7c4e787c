"""Built-in networks: their parameters, their torch modules and their ONNX files are one thing."""

import math

import numpy as np
import pytest
import torch

from confide.protocol.architectures.base import (
    BuiltIn,
    canonical,
    parameters_digest,
    read_arguments,
    scaled,
)
from confide.protocol.architectures.convolutions import groups
from confide.protocol.architectures.export import predict_file, to_onnx
from confide.protocol.architectures.registry import NETWORKS, built_in, read_architecture, register
from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from tests.support.networks.networks import drawn, loaded

DESCRIBED = [
    ("linear", 16, 26),
    ("mlp hidden=20", 16, 26),
    ("mlp hidden=20,10", 16, 26),
    ("cnn", 256, 10),
    ("cnn image=3,9,11 channels=6,7", 297, 4),
    ("cnn image=1,4,4 channels=8", 16, 26),
]


def network_of(text: str, features: int, outputs: int) -> BuiltIn:
    name, arguments = read_architecture(text)
    return built_in(name, canonical(arguments), features=features, outputs=outputs)


@pytest.mark.parametrize(("text", "features", "outputs"), DESCRIBED)
def test_parameters_are_those_of_the_module(text: str, features: int, outputs: int) -> None:
    """Names, shapes and their order: weights that travel in a row land where they belong."""
    network = network_of(text, features, outputs)
    found = {name: tuple(value.shape) for name, value in network.module().named_parameters()}
    assert list(found.items()) == list(network.shapes.items())
    weights = network.first_weights()
    assert weights.shape == (network.size,)
    assert weights.tobytes() == network_of(text, features, outputs).first_weights().tobytes()
    assert np.abs(weights).max() <= 1


@pytest.mark.parametrize(("text", "features", "outputs"), DESCRIBED)
def test_the_file_computes_what_the_module_does(text: str, features: int, outputs: int) -> None:
    """On the owner's path too, where the graph is checked and runs on one record at a time; and
    the same weights give the same bytes."""
    network = network_of(text, features, outputs)
    weights, centre = drawn(network.size, 1), 0.4
    records = np.random.default_rng(2).uniform(-0.2, 1.2, (5, features))
    inputs = torch.from_numpy(scaled(records, centre))
    expected = torch.softmax(loaded(network, weights)(inputs), dim=1).detach().numpy()
    file = to_onnx(network, weights, centre=centre)
    assert file == to_onnx(network, weights, centre=centre)
    session = Model.of(file).open()
    session.accept((features,), outputs)
    one_by_one = np.zeros((5, outputs), dtype=np.float32)
    session.each(records, one_by_one)
    assert np.allclose(one_by_one, expected, atol=1e-5)
    assert np.allclose(predict_file(file, records), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("", 16),
        ("lstm", 16),
        ("linear hidden=3", 16),
        ("mlp hidden", 16),
        ("mlp hidden=1 hidden=2", 16),
        ("mlp hidden=0", 16),
        ("mlp hidden=1.5", 16),
        ("mlp hidden=true", 16),
        ("mlp hidden=" + ",".join("1" * 15), 16),
        ("mlp hidden=131072", 16),
        ("mlp depth=3", 16),
        ("cnn image=1,4,5", 16),
        ("cnn image=4,4", 16),
        ("cnn image=1,4,4 channels=8,8,8", 16),
        ("cnn channels=2048", 256),
        ("cnn", 17),
    ],
)
def test_other_descriptions_are_refused(text: str, features: int) -> None:
    with pytest.raises(BadInput, match="accepted"):
        network_of(text, features, 10)


@pytest.mark.parametrize("text", ["{ }", "[]", "x", '{"b":1,"a":2}', '{"a":NaN}', "[" * 10_000])
def test_arguments_have_one_form(text: str) -> None:
    """Two texts for the same arguments would be two plans."""
    with pytest.raises(BadInput, match="arguments are"):
        read_arguments(text)


def test_long_arguments_are_refused() -> None:
    with pytest.raises(BadInput, match="accepted are at most 4096"):
        canonical({"a": "x" * 5000})


def test_names_and_shapes_have_one_digest() -> None:
    """Another name, shape or order is another network."""
    shapes = {"a": (2, 3), "b": (3,)}
    others = [{"a": (3, 2), "b": (3,)}, {"b": (3,), "a": (2, 3)}, {"a": (2, 3), "c": (3,)}]
    digests = {parameters_digest(found) for found in (shapes, *others)}
    assert len(digests) == 4


def test_wrong_weights_are_not_exported() -> None:
    network = network_of("linear", 4, 3)
    for weights in (np.zeros(14, dtype=np.float32), np.full(15, np.nan, dtype=np.float32)):
        with pytest.raises(BadInput, match="accepted are 15 finite numbers"):
            to_onnx(network, weights, centre=0.0)


def test_groups_divide_channels() -> None:
    for channels in range(1, 65):
        found = groups(channels)
        assert channels % found == 0
        assert channels // found == math.gcd(channels, 4)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(BadInput, match="registered already"):
        register(type("Other", (NETWORKS["mlp"],), {}))
