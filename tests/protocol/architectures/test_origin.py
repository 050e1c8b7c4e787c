"""A file is recognised as the export of a network by its bytes, whatever its weights are."""

from typing import Any

import numpy as np
import pytest

from confide.protocol.architectures.export import to_onnx
from confide.protocol.architectures.origin import is_export
from confide.protocol.architectures.registry import open_network
from tests.support.networks.graphs import first_feature
from tests.support.networks.heads import BACKBONE, INPUTS, opset

CASES: dict[str, tuple[str, str, int, bytes | None]] = {
    "linear": ("linear", "{}", 4, None),
    "mlp": ("mlp", '{"hidden":[3,2]}', 4, None),
    "cnn": ("cnn", '{"channels":[4],"image":[1,4,4]}', 16, None),
    "head": ("head", '{"hidden":[3]}', INPUTS, BACKBONE.data),
}


def network(case: str) -> tuple[Any, bytes | None]:
    name, arguments, features, backbone = CASES[case]
    return open_network(name, arguments, source=b"", features=features, outputs=3), backbone


@pytest.mark.parametrize("case", CASES)
def test_an_export_is_recognised_and_nothing_else(case: str) -> None:
    """With any finite weights, at its own centre and on its own backbone; not with another number
    or name in place of one that is no weight, nor with one byte more."""
    made, backbone = network(case)
    rng = np.random.default_rng(0)
    for weights in (made.first_weights(), rng.normal(size=made.size).astype(np.float32)):
        file = to_onnx(made, weights, centre=0.5, backbone=backbone)
        assert is_export(file, made, centre=0.5, backbone=backbone)
    assert not is_export(file, made, centre=0.25, backbone=backbone)
    assert not is_export(first_feature(), made, centre=0.5, backbone=backbone)
    assert not is_export(file + b"\0", made, centre=0.5, backbone=backbone)
    assert not is_export(b"\xff" * len(file), made, centre=0.5, backbone=backbone)
    if backbone is not None:
        assert not is_export(file, made, centre=0.5, backbone=opset(BACKBONE, 16))


@pytest.mark.parametrize("case", CASES)
def test_every_byte_that_is_no_weight_counts(case: str) -> None:
    """Each byte of a file is changed alone: it is still an export if the byte is of a weight."""
    made, backbone = network(case)
    # Two numbers whose bits are all different.
    one, other = (
        to_onnx(made, np.full(made.size, number, dtype=np.float32), centre=0.5, backbone=backbone)
        for number in np.array([0x3FC00000, 0xC03FFFFF], dtype=np.uint32).view(np.float32)
    )
    for place in np.random.default_rng(1).permutation(len(one))[:400].tolist():
        changed = bytearray(one)
        changed[place] ^= 1
        weight = one[place] != other[place]
        assert is_export(bytes(changed), made, centre=0.5, backbone=backbone) == weight, place
