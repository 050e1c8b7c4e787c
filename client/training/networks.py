"""Clipped sums of a network's gradients at weights that others choose.

Stacks of linear layers are trained in exact arithmetic (`confide.client.training.layers`), other
networks by torch in double precision on the owner's device.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.training.layers import Stack
from confide.protocol.architectures.base import Network, scaled, split_weights
from confide.protocol.exact.sampling import Entropy

log = logging.getLogger(__name__)

Array = NDArray[Any]
# Maps weights, features, labels and a source of randomness to a sum in lattice units.
Sums = Callable[[NDArray[np.float64], Array, Array, Entropy], NDArray[np.int64]]


def open_sums(network: Network, *, clip: float, centre: float, device: str) -> Sums:
    """Return the clipped sums of a network; refuse one that treats records together."""
    widths = network.widths
    if widths is None:
        return _TorchSums(network, clip=clip, centre=centre, device=device)
    log.info("training in exact arithmetic: linear layers of widths %s", widths)

    def exact(
        weights: NDArray[np.float64], features: Array, labels: Array, _: Entropy
    ) -> NDArray[np.int64]:
        return Stack(widths, weights, clip=clip, centre=centre).clipped_sum(features, labels)

    return exact


class _TorchSums:
    """The clipped sums of a torch module."""

    def __init__(self, network: Network, *, clip: float, centre: float, device: str) -> None:
        from confide.client.training.clipping import AUTO, make_clipper
        from confide.client.training.descent import pick_device
        from confide.client.training.probe import made_up, probe

        self._network, self._centre, self._device = network, centre, pick_device(device)
        self._module = network.module().double().to(self._device).train()
        rows, targets = np.zeros((1, network.features)), np.zeros(1, dtype=np.int64)
        probe(self._module, _loss, AUTO, *made_up(rows, targets, self._device))
        self._clipped = make_clipper(self._module, _loss, clip)

    def __call__(
        self, weights: NDArray[np.float64], features: Array, labels: Array, entropy: Entropy
    ) -> NDArray[np.int64]:
        import torch

        from confide.client.training.descent import clipped_sum

        self._load(weights)
        known = (labels >= 0) & (labels < self._network.outputs)
        targets = np.where(known, labels, _NO_LABEL).astype(np.int64)
        records = (
            torch.from_numpy(scaled(features, self._centre)).to(self._device),
            torch.from_numpy(targets).to(self._device),
        )
        cuda = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            # Dropout and the like draw from the step's own randomness.
            torch.manual_seed(int.from_bytes(entropy(8), "little") >> 1)
            return clipped_sum(
                self._clipped, records, np.arange(len(features)), weights=self._network.size
            )

    def _load(self, weights: NDArray[np.float64]) -> None:
        import torch

        trained = dict(self._module.named_parameters())
        with torch.no_grad():
            for name, value in split_weights(self._network.shapes, weights):
                trained[name].copy_(torch.from_numpy(np.ascontiguousarray(value)))


_NO_LABEL = -100


def _loss(outputs: Any, targets: Any) -> Any:
    """Cross-entropy; a label without an output has no gradient."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets, reduction="none", ignore_index=_NO_LABEL)
