"""Sums of clipped per-record gradients of any torch model: one step of DP-SGD before noise.

Two engines give the same sums. Opacus holds every record's gradient in memory and takes any model
it supports. A stack of linear layers needs none of them: a layer's gradient for a record is the
outer product of the backpropagated signal d and the input x, so its squared norm is |d|^2 (|x|^2 +
1), bias included, and the clipped sum is one matrix product. Softmax regression and least squares
are stacks of one layer.

Sums are float64 in lattice units (`confide.protocol.exact.lattice`): a record's share has a norm of
at most CLIP_UNITS. That holds where model and loss treat every record by itself, which
`confide.client.training.probe` tries before training.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import CLIP_UNITS, LEAST_CHUNK, MOST_WEIGHTS, chunk_rows

Loss = Callable[[Tensor, Tensor], Tensor]
Sums = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

AUTO, STACK, OPACUS = "auto", "stack", "opacus"

# Modules without parameters or state that treat every record by itself.
_ELEMENTWISE = (
    nn.ReLU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.ELU,
    nn.LeakyReLU,
    nn.Softplus,
    nn.Identity,
)
# Larger than the rounding error of float64 in a norm of four million numbers.
_MARGIN = 1e-6
# Up to this, products of two squares do not overflow. A square that underflows in float64 is of a
# number below 2^-500; times this it is still negligible beside the least clip, so norms are right
# up to the margin.
_LARGE = 2.0**200
# Memory for gradients, or for inputs and signals, of the smallest chunk of records; an engine needs
# about twice that at its peak.
_MOST_BYTES = 1 << 31


@dataclass(frozen=True)
class Clipper:
    """Maps a batch to its losses, one a record, and to the clipped sum of its gradients.

    The sum has all trained weights in a row. Memory is bounded if it is given at most `rows`
    records at a time.
    """

    sums: Sums
    rows: int

    def __call__(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.sums(features, targets)


def make_clipper(model: nn.Module, loss: Loss, clip: float, engine: str = AUTO) -> Clipper:
    """A clipper for a model whose weights are float64."""
    if engine not in (AUTO, STACK, OPACUS):
        raise BadInput(f"engine is {engine!r}; accepted are {AUTO!r}, {STACK!r} and {OPACUS!r}")
    layers = stack_of(model)
    if engine == STACK and layers is None:
        raise BadInput(
            f"{type(model).__name__} is no stack of linear layers and activations; accepted is "
            f"engine {OPACUS!r}"
        )
    if any(parameter.dtype != torch.float64 for parameter in model.parameters()):
        raise BadInput("the model has weights that are not float64; accepted is model.double()")
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if not 1 <= weights <= MOST_WEIGHTS:
        raise BadInput(
            f"the model has {weights} weights to train; accepted are 1 to {MOST_WEIGHTS}"
        )
    if engine == OPACUS or layers is None:
        return Clipper(_opacus(model, loss, clip), _rows(weights))
    widths = sum(
        layer.in_features + layer.out_features for layer in layers if isinstance(layer, nn.Linear)
    )
    return Clipper(_stack(layers, loss, clip), _rows(2 * widths))


def _rows(numbers: int) -> int:
    """How many records to take at a time, if so many float64 numbers are held for each."""
    if 8 * numbers * LEAST_CHUNK > _MOST_BYTES:
        raise BadInput(
            f"the model needs {numbers} numbers in memory for each of {LEAST_CHUNK} records at a "
            f"time; accepted are at most {_MOST_BYTES // 8 // LEAST_CHUNK}: a smaller model, or "
            "linear layers and activations in a row, which need no gradient of each record"
        )
    return chunk_rows(8 * numbers)


def stack_of(model: nn.Module) -> list[nn.Module] | None:
    """The layers of a model of linear layers and elementwise functions in a row; else None.

    All of it must be trained. A hook, or a weight that is computed from others (as in spectral
    normalisation), makes a layer another function.
    """
    layers = list(model) if type(model) is nn.Sequential else [model]
    if any(_is_changed(part) for part in model.modules()):
        return None
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    plain = all(type(layer) is nn.Linear or type(layer) in _ELEMENTWISE for layer in layers)
    parameters = [parameter for layer in linear for parameter in layer.parameters()]
    shared = len({id(parameter) for parameter in parameters}) != len(parameters)
    trained = all(parameter.requires_grad for parameter in parameters)
    return layers if linear and plain and trained and not shared else None


def _is_changed(module: nn.Module) -> bool:
    """Whether a module differs from its class: hooks, a forward pass of its own, parameters.

    Parameters count for linear layers only.
    """
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    reparametrised = isinstance(module, nn.Linear) and set(module._parameters) != {"weight", "bias"}
    return any(hooks) or "forward" in vars(module) or reparametrised


def _stack(layers: list[nn.Module], loss: Loss, clip: float) -> Sums:
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]

    def clipped(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        inputs, outputs, value = [], [], features
        for layer in layers:
            if isinstance(layer, nn.Linear):
                inputs.append(value.detach())
                value = layer(value)
                outputs.append(value)
            else:
                # An activation that works in place would overwrite an output that autograd needs.
                value = layer(value.clone() if getattr(layer, "inplace", False) else value)
        losses = _checked(loss(value, targets), len(features))
        inputs, left_out = _within_range(inputs)
        signals, lost = _within_range(list(torch.autograd.grad(losses.sum(), outputs)))
        squares = torch.zeros(len(features), device=features.device, dtype=torch.float64)
        for layer, given, signal in zip(linear, inputs, signals, strict=True):
            squares += _square(signal) * (_square(given) + (1.0 if layer.bias is not None else 0.0))
        factor = _factor(squares, clip, left_out | lost)
        parts = []
        for layer, given, signal in zip(linear, inputs, signals, strict=True):
            kept = signal * factor.unsqueeze(1)
            parts.append((kept.T @ given).flatten())
            if layer.bias is not None:
                parts.append(kept.sum(dim=0))
        return losses.detach(), torch.cat(parts)

    return clipped


def _opacus(model: nn.Module, loss: Loss, clip: float) -> Sums:
    try:
        from opacus import GradSampleModule
        from opacus.validators import ModuleValidator
    except ModuleNotFoundError:
        raise BadInput(
            "training this model needs the package opacus; install confide[train]"
        ) from None
    errors = ModuleValidator.validate(model, strict=False)
    if errors:
        raise BadInput(f"{type(model).__name__} cannot be trained record by record: {errors[0]}")
    trained = {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    per_record: Any = GradSampleModule(model, loss_reduction="sum")

    def clipped(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        per_record.zero_grad(set_to_none=True)
        losses = _checked(loss(per_record(features), targets), len(features))
        torch.autograd.backward(losses.sum())
        found = [_by_record(name, parameter, len(features)) for name, parameter in trained.items()]
        gradients, left_out = _within_range(found)
        squares = torch.stack([_square(rows) for rows in gradients]).sum(dim=0)
        factor = _factor(squares, clip, left_out)
        for parameter in trained.values():
            parameter.grad, parameter.grad_sample = None, None  # type: ignore[attr-defined]
        return losses.detach(), torch.cat([factor @ rows for rows in gradients])

    return clipped


def _by_record(name: str, parameter: nn.Parameter, records: int) -> Tensor:
    """A parameter's gradients, a row a record.

    Opacus makes a row of everything that its layer saw as a row.
    """
    gradients: Tensor | None = getattr(parameter, "grad_sample", None)
    if gradients is None or len(gradients) != records:
        found = "none" if gradients is None else len(gradients)
        raise BadInput(
            f"the model cannot be trained record by record: of {records} records, {name} has "
            f"{found} gradients; accepted are models whose every layer takes part and has the "
            "records in its first dimension, one each"
        )
    return gradients.flatten(1)


def _within_range(parts: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Set the parts of records that hold a too large number, or none, to 0; say which.

    An error would tell that such a record exists.
    """
    largest = torch.stack([torch.linalg.vector_norm(part, ord=math.inf, dim=1) for part in parts])
    left_out = ~(largest <= _LARGE).all(dim=0)
    if left_out.any():
        parts = [part.masked_fill(left_out.unsqueeze(1), 0.0) for part in parts]
    return parts, left_out


def _square(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1).square()


def _factor(squares: Tensor, clip: float, left_out: Tensor) -> Tensor:
    """Scales each record's gradient to lattice units and to a norm of at most CLIP_UNITS."""
    return (CLIP_UNITS * (1 - _MARGIN) / squares.sqrt().clamp(min=clip)).masked_fill(left_out, 0.0)


def _checked(losses: Tensor, records: int) -> Tensor:
    if losses.shape != (records,):
        raise BadInput(
            f"the loss of {records} records has shape {tuple(losses.shape)}; accepted is one "
            "number a record (reduction='none')"
        )
    return losses
