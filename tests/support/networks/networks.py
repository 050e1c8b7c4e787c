"""Weights drawn for built-in networks, and torch modules that have them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.protocol.architectures.base import BuiltIn, split_weights


def drawn(size: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 0.3, size).astype(np.float32)


def loaded(network: BuiltIn, weights: NDArray[np.float32]) -> Any:
    module = network.module().double()
    with torch.no_grad():
        for (_, value), parameter in zip(
            split_weights(network.shapes, weights), module.parameters(), strict=True
        ):
            parameter.copy_(torch.from_numpy(value.copy()))
    return module
