"""Clipped sums of a network's gradients at weights that others choose.

Stacks of linear layers are trained in exact arithmetic (`confide.client.training.layers`), unless
the owner asks for an engine. Other networks are trained by torch in double precision on the owner's
device, in micro-batches at which a record's gradient has the same bits in any company
(`confide.client.training.engines`).
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.training.computing import AUTO, USUAL, Computing, one_by_one
from confide.client.training.layers import Stack
from confide.protocol.architectures.base import Network, Span, scaled, shares, split_weights
from confide.protocol.exact.sampling import Entropy

log = logging.getLogger(__name__)

Array = NDArray[Any]
# Features, and labels or targets.
Rows = tuple[Array, Array]
# Maps weights, records and a source of randomness to a sum in lattice units.
Sums = Callable[[NDArray[np.float64], Rows, Entropy], NDArray[np.int64]]

_NO_LABEL = -100


def open_sums(
    network: Network,
    *,
    clip: float,
    centre: float,
    batch: float,
    computing: Computing = USUAL,
    alone: bool = False,
    span: Span | None = None,
) -> Sums:
    """Return the clipped sums of a network; refuse one that treats records together.

    With `alone`, torch computes a function of one record: what no trial shows, at weights that
    others choose, cannot mix records either. `batch` is about the number of records of a step, for
    the size of micro-batches. `span` is the range of targets, if the network learns numbers instead
    of labels.
    """
    if alone:
        computing = replace(computing, engine=one_by_one(computing.engine))
    widths = network.widths
    if widths is None or computing.engine != AUTO:
        return _TorchSums(
            network, clip=clip, centre=centre, batch=batch, computing=computing, span=span
        )
    log.info("gradients in exact arithmetic: linear layers of widths %s", widths)
    kept = np.empty((2, network.size))

    def exact(weights: NDArray[np.float64], rows: Rows, _: Entropy) -> NDArray[np.int64]:
        stack = Stack(widths, weights, clip=clip, centre=centre, span=span, kept=kept)
        return stack.clipped_sum(*rows)

    return exact


def count_errors(
    network: Network, weights: NDArray[np.float64], rows: Rows, *, centre: float
) -> int:
    """How many records the network predicts wrongly; labels that it does not know count as wrong.

    So is a record on which it fails: an error would tell of it.

    Other networks than stacks see one record at a time: in a batch, the last bits of a record's
    outputs may depend on its company, and with weights chosen for it they decide a prediction.
    """
    features, labels = rows
    if network.widths is not None:
        predicted = Stack(network.widths, weights, clip=1.0, centre=centre).predicted(features)
        return int(np.count_nonzero(predicted != labels))
    import torch

    from confide.client.training.descent import one_thread

    module = network.module().double().eval()
    load_weights(module, network, weights)
    records = torch.from_numpy(scaled(features, centre))
    wrong = 0
    with torch.no_grad(), one_thread(torch.device("cpu")):
        for place, label in enumerate(labels):
            wrong += _predicted(module, records[place : place + 1]) != int(label)
    return wrong


def _predicted(module: Any, record: Any) -> int | None:
    from torch.func import functional_call

    from confide.client.training.engines.functional import copied_state

    try:
        return int(functional_call(module, copied_state(module), (record,)).argmax())
    except Exception:
        return None


class _TorchSums:
    """The clipped sums of a torch module."""

    def __init__(
        self,
        network: Network,
        *,
        clip: float,
        centre: float,
        batch: float,
        computing: Computing,
        span: Span | None,
    ) -> None:
        from confide.client.training.descent import one_thread, pick_device
        from confide.client.training.engines.choice import make_clipper
        from confide.client.training.engines.probe import made_up, probe

        self._network, self._centre, self._device = network, centre, pick_device(computing.device)
        self._module = network.module().double().to(self._device).train()
        self._span = span
        loss = cross_entropy_loss if span is None else squared_loss
        rows, targets = np.zeros((1, network.features)), self._targets(np.zeros(1, dtype=np.int64))
        like = made_up(rows, targets, self._device)
        with one_thread(self._device):
            probe(self._module, loss, like, engine=computing.engine)
            self._clipped = make_clipper(
                self._module, loss, clip, engine=computing.engine, like=like, batch=batch
            )

    def __call__(
        self, weights: NDArray[np.float64], rows: Rows, entropy: Entropy
    ) -> NDArray[np.int64]:
        import torch

        from confide.client.training.descent import one_thread
        from confide.client.training.engines.clipper import clipped_sum

        load_weights(self._module, self._network, weights)
        features, targets = rows[0], self._targets(rows[1])
        records = (
            torch.from_numpy(scaled(features, self._centre)).to(self._device),
            torch.from_numpy(targets).to(self._device),
        )
        with one_thread(self._device):
            return clipped_sum(
                self._clipped,
                records,
                np.arange(len(targets)),
                weights=self._network.size,
                entropy=entropy,
            )

    def _targets(self, truth: Array) -> Array:
        """Return labels, or targets as the network learns them."""
        if self._span is not None:
            return shares(truth, self._span)
        known = (truth >= 0) & (truth < self._network.outputs)
        return np.where(known, truth, _NO_LABEL).astype(np.int64)


def load_weights(module: Any, network: Network, weights: Array) -> None:
    """Put a row of weights into a torch module of the network."""
    import torch

    trained = dict(module.named_parameters())
    with torch.no_grad():
        for name, value in split_weights(network.shapes, weights):
            trained[name].copy_(torch.from_numpy(np.ascontiguousarray(value)))


def squared_loss(outputs: Any, targets: Any) -> Any:
    """A quarter of the squared error of the one output; without a target there is no gradient."""
    return (outputs[:, 0] - targets).square() / 4


def cross_entropy_loss(outputs: Any, targets: Any) -> Any:
    """Cross-entropy; a label without an output has no gradient."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets, reduction="none", ignore_index=_NO_LABEL)
