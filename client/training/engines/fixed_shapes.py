"""The shapes of micro-batches at which a record's gradient has the same bits in any company.

A batched kernel may round a row differently in batches of different sizes, or at different places
of one batch. With weights chosen for it, the last bit of one pre-activation decides a ReLU; then
one record more would change the gradients of all others, and no bound on the effect of one record
would hold. At one shape, a kernel's sequence of floating-point operations does not depend on
values. So a few fixed shapes are tried on made-up rows and made-up weights, on the device that
trains, and kept if every row's loss, gradient parts and norms have the same bits

    at different places, and beside other rows, rows of 0 and much larger rows,

and the same at all shapes kept. A shape of one record has no company. Assumed, and not shown by a
trial: kernels choose their operations by shape and device and not by values, and do so alike in all
calls of a process while its number of threads stays the same.
"""

import copy
import math
import os
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from confide.client.training.engines.parts import Engine, norms
from confide.protocol.errors import BadInput

# Intel's MKL rounds by where in memory a row lies unless it is told not to (conditional numerical
# reproducibility), before its first use in a process. Where it is too late for that, or another
# library multiplies, the trial leaves smaller micro-batches, and no wrong bit.
os.environ.setdefault("MKL_CBWR", "AUTO")

# Rounding differs in the last bits. Gradients that differ by more than this depend on other rows.
_MIXED = 2.0**-20
# Smaller shapes are not worth their trial if a larger one is found, nor are those below a sixteenth
# of the largest.
_LEAST = 8
_FEWER = 16
_LARGER = 1e8


def fixed_shapes(engine: Engine, rows: tuple[Tensor, Tensor], most: int) -> tuple[int, ...]:
    """Powers of two up to `most`, largest first; 1 if no larger shape passes the trial.

    A shape that the device has no memory for does not pass.
    """
    found: list[int] = []
    reference: list[Tensor] | None = None
    shape, least = 1 << (most.bit_length() - 1), 2
    while shape >= least:
        try:
            agreed = _Trial(engine, rows, shape).outcome(reference)
        except torch.OutOfMemoryError:
            agreed = None
        if agreed is not None:
            if not found:
                reference, least = agreed, max(_LEAST, shape // _FEWER)
            found.append(shape)
        shape //= 2
    return tuple(found) or (1,)


class _Trial:
    """Made-up rows in several arrangements of one shape."""

    def __init__(self, engine: Engine, rows: tuple[Tensor, Tensor], shape: int) -> None:
        self._engine, self._shape = engine, shape
        self._features, self._targets = rows
        self._period = min(shape, len(self._features))

    def outcome(self, reference: list[Tensor] | None) -> list[Tensor] | None:
        """Return losses, gradient parts and norms of the rows if no arrangement changes a bit.

        Else return None, also if they differ from those of a `reference`. Differences that rounding
        cannot explain are refused.
        """
        same = True
        for order, kept, company in self._arrangements():
            found = self._traced(order, kept, company)
            if reference is None:
                reference = [ours[: self._period].clone() for ours in found]
            for ours, theirs in zip(found, reference, strict=True):
                expected = theirs[order[kept]]
                if not torch.equal(_bits(ours[kept]), _bits(expected)):
                    _check_rounding(ours[kept], expected)
                    same = False
        return reference if same else None

    def _arrangements(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Which row is at each place, which places are compared, and what is at all others."""
        places = torch.arange(self._shape, device=self._features.device)
        everywhere, even = torch.ones_like(places, dtype=torch.bool), places % 2 == 0
        yield self._order(0), everywhere, None
        yield self._order(3), everywhere, None
        yield self._order(1), even, torch.zeros_like(self._features[:1])
        yield self._order(2), ~even, self._extremes()

    def _order(self, offset: int) -> Tensor:
        places = torch.arange(self._shape, device=self._features.device)
        return (places + offset) % self._period

    def _extremes(self) -> Tensor:
        """Much larger rows; whole numbers stay, because they may be places in a table."""
        whole = bool((self._features == self._features.round()).all())
        return self._features if whole else _LARGER * self._features

    def _traced(self, order: Tensor, kept: Tensor, company: Tensor | None) -> list[Tensor]:
        features, targets = self._features[order], self._targets[order]
        if company is not None:
            others = torch.arange(int((~kept).sum()), device=features.device) % len(company)
            features[~kept] = company[others]
        losses, parts = self._engine.trace(features, targets)
        tensors = [tensor.detach() for part in parts for tensor in part.tensors]
        return [losses.detach(), *tensors, *(norms(tensor) for tensor in tensors)]


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int64)


def _check_rounding(ours: Tensor, theirs: Tensor) -> None:
    """Refuse a difference that is more than one of rounding."""
    ours, theirs = (values.reshape(len(values), -1) for values in (ours, theirs))
    apart = (ours - theirs).abs().amax(dim=1)
    if not bool((apart <= _MIXED * theirs.abs().amax(dim=1)).all()):
        raise BadInput(
            "the model cannot be trained record by record: gradients of made-up rows depend on the "
            "rows beside them, so they do not add up to those of each row alone; accepted are "
            "models and losses that treat every record by itself"
        )


def made_up_weights(model: nn.Module) -> nn.Module:
    """A copy with random weights and without dropout.

    Weights of 0 would hide what they multiply.
    """
    copied, chance = without_dropout(model), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in copied.parameters():
            drawn = torch.randn(parameter.shape, generator=chance, dtype=torch.float64)
            terms = parameter.numel() // len(parameter) if parameter.dim() > 1 else 1
            parameter.copy_((drawn / math.sqrt(terms)).to(parameter.device))
    return copied


def without_dropout(model: nn.Module) -> nn.Module:
    """A copy in which dropout modules, and layers with dropout of their own, are in evaluation."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        # Attention and recurrent layers have a share of dropout, and no module for it.
        if isinstance(module, nn.modules.dropout._DropoutNd) or isinstance(
            getattr(module, "dropout", None), float
        ):
            module.training = False
    return copied
