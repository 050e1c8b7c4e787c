"""Clipping of per-record gradients and their sum on the lattice, whichever engine finds them.

Records go through the model in micro-batches of fixed shapes, filled up with copies of a record
that have no share. At these shapes a record's loss, gradient and factor have the same bits at every
place and beside any other records (`confide.client.training.engines.fixed_shapes`), so these change
nothing but the order in which float64 adds. FLOAT_MARGIN of `confide.protocol.exact.lattice` covers
that: GROUP records (or the largest shape, if that is more) are added first and the sums of groups
after, so that a sum has at most MOST_CHUNK + 2 + MOST_BATCH / MOST_CHUNK roundings in a row, as the
bound there assumes, however small a micro-batch is.

A record on which model or loss raises an error counts as 0, and no other record does: an error that
left, or that took other records with it, would tell that such a record is there. A micro-batch with
an error is taken apart until the records that raise it are alone. Filled up with copies of its own
record, a shape fails for that record or not at all. Assumed is that what dropout draws decides no
error.
"""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.client.training.engines.draws import torch_seeded
from confide.client.training.engines.parts import Engine, GradientPart, norms
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import Entropy

log = logging.getLogger(__name__)

# Larger than the rounding error of float64 in a norm of four million numbers.
_MARGIN = 1e-6
# Up to this, products of two squares do not overflow. A square that underflows in float64 is of a
# number below 2^-500; times this it is still negligible beside the least clip, so norms are right
# up to the margin.
_LARGE = 2.0**200
GROUP = 1 << 10


@dataclass(frozen=True)
class Clipper:
    """Maps records to their losses, one each, and to the clipped sum of their gradients.

    The sum has all trained weights in a row. `rows` is the largest micro-batch, `name` the engine,
    `weights` the number of weights.
    """

    name: str
    engine: Engine
    clip: float
    shapes: tuple[int, ...]
    weights: int

    @property
    def rows(self) -> int:
        return self.shapes[0]

    def __call__(
        self, features: Tensor, targets: Tensor, *, entropy: Entropy | None = None
    ) -> tuple[Tensor, Tensor]:
        """Losses and clipped sum of at least one record.

        With `entropy`, torch's generator gets a new seed for every micro-batch and is left as it
        was. The loss of a record on which the model fails is no number.
        """
        losses, total = [], None
        failed: list[Exception] = []
        for start, size, shape in pieces(len(features), self.shapes):
            rows = slice(start, start + size)
            with torch_seeded(entropy, features.device):
                found, part = self._piece((features[rows], targets[rows]), shape, failed)
            losses.append(found)
            total = part if total is None else total.add_(part)
        assert total is not None
        if failed:
            log.warning("the network fails on %d records, left out: %s", len(failed), failed[0])
        return losses[0] if len(losses) == 1 else torch.cat(losses), total

    def _piece(
        self, records: tuple[Tensor, Tensor], shape: int, failed: list[Exception]
    ) -> tuple[Tensor, Tensor]:
        """Losses and clipped sum of a micro-batch; errors of single records are put into a list."""
        features, targets = records
        size = len(features)
        try:
            return self.attempt(features, targets, shape=shape)
        except Exception as error:
            if size == 1:
                failed.append(error)
                return features.new_full((1,), math.nan), features.new_zeros(self.weights)
        halves = (slice(size // 2), slice(size // 2, size))
        (first, left), (second, right) = (
            self._piece((features[rows], targets[rows]), shape, failed) for rows in halves
        )
        return torch.cat([first, second]), left.add_(right)

    def attempt(self, features: Tensor, targets: Tensor, *, shape: int) -> tuple[Tensor, Tensor]:
        """Losses and clipped sum of a micro-batch; its errors are raised."""
        size = len(features)
        losses, parts = self.engine.trace(padded(features, shape), padded(targets, shape))
        losses = losses.detach()
        factor, parts = factors(losses, parts, self.clip)
        # The rows that fill up; all parts are finite here.
        factor[size:] = 0.0
        return losses[:size], weighted_sum(factor, parts)


def factors(
    losses: Tensor, parts: list[GradientPart], clip: float
) -> tuple[Tensor, list[GradientPart]]:
    """Factors that scale gradients to lattice units and norms of at most CLIP_UNITS, and the parts.

    A record counts as 0 if its loss is not finite or its gradient holds a too large number, or
    none. An error would tell that such a record exists.
    """
    # A signal is in the part of a weight and in that of its bias.
    tensors = {id(tensor): tensor for part in parts for tensor in part.tensors}
    found = torch.stack([norms(tensor) for tensor in tensors.values()])
    broken = ~((found <= _LARGE).all(dim=0) & torch.isfinite(losses))
    square = dict(zip(tensors, found.square(), strict=True))
    squares = torch.zeros_like(losses)
    for part in parts:
        first, *others = (square[id(tensor)] for tensor in part.tensors)
        squares += math.prod(others, start=first)
    factor = CLIP_UNITS * (1 - _MARGIN) / squares.sqrt().clamp(min=clip)
    if broken.any():
        return factor.masked_fill(broken, 0.0), [part.masked(broken) for part in parts]
    return factor, parts


def weighted_sum(factor: Tensor, parts: list[GradientPart]) -> Tensor:
    """The sum of all gradients, each times its record's factor: all weights in a row."""
    sizes = [part.weights for part in parts]
    total = factor.new_empty(sum(sizes))
    for part, row in zip(parts, torch.split(total, sizes), strict=True):
        part.write_sum(factor, row)
    return total


def padded(rows: Tensor, shape: int) -> Tensor:
    """The rows, and copies of the first up to the shape, in memory of their own.

    A part of a larger tensor may lie where kernels round differently.
    """
    filled = rows.new_empty((shape, *rows.shape[1:]))
    filled[: len(rows)] = rows
    filled[len(rows) :] = rows[0]
    return filled


def pieces(records: int, shapes: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Start, size and shape of micro-batches that take all records; shapes are largest first."""
    start = 0
    while start < records:
        left = records - start
        enough = [shape for shape in shapes if shape >= left]
        below = [shape for shape in shapes if shape <= left]
        # A micro-batch of which a quarter or less is filled up costs less than two smaller ones.
        shape = enough[-1] if enough and (not below or 4 * left >= 3 * enough[-1]) else below[0]
        yield start, min(shape, left), shape
        start += shape


def clipped_sum(
    clipped: Clipper,
    records: tuple[Tensor, Tensor],
    rows: NDArray[np.int64],
    *,
    weights: int,
    entropy: Entropy | None = None,
    check: Callable[[Tensor], None] | None = None,
) -> NDArray[np.int64]:
    """The clipped gradients of the rows, added in groups and rounded to the lattice once.

    `entropy` seeds what the model draws (dropout). `check` sees the losses of each group; what it
    raises tells of records.
    """
    features, targets = records
    total = torch.zeros(weights, dtype=torch.float64, device=features.device)
    for group in torch.split(torch.from_numpy(rows).to(features.device), max(GROUP, clipped.rows)):
        if len(group):
            losses, part = clipped(features[group], targets[group], entropy=entropy)
            if check is not None:
                check(losses)
            total += part
    return np.rint(total.cpu().numpy()).astype(np.int64)
