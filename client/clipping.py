"""Sums of clipped per-record gradients: what one step of DP-SGD may learn from its records before noise.

Two engines leave the same sums in `parameter.grad`. Opacus holds every record's gradient in memory and takes any model it
supports. A stack of linear layers needs none of them: a layer's gradient for a record is the outer product of the
backpropagated signal d and the input x, so its squared norm is |d|^2 (|x|^2 + 1), bias included, and the clipped sum is one
matrix product. Softmax regression and least squares are stacks of one layer.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from protocol.errors import BadInput

Loss = Callable[[Tensor, Tensor], Tensor]
Clipper = Callable[[Tensor, Tensor], Tensor]

AUTO, STACK, OPACUS = "auto", "stack", "opacus"

# Modules without parameters or state that treat every record by itself.
_ELEMENTWISE = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity)
# Opacus divides by the norm and this much; done alike here.
_TINY = 1e-6
# Between these, single precision holds the norm of any row of numbers and its square; below the last, no factor.
_SMALL, _LARGE, _LEAST = 1e-12, 1e12, 1e-30


def make_clipper(model: nn.Module, loss: Loss, clip: float, engine: str = AUTO) -> Clipper:
    """A function of a batch that leaves the clipped sum in every `parameter.grad` and returns the losses, one a record."""
    if engine not in (AUTO, STACK, OPACUS):
        raise BadInput(f"engine is {engine!r}; accepted are {AUTO!r}, {STACK!r} and {OPACUS!r}")
    layers = stack_of(model)
    if engine == STACK and layers is None:
        raise BadInput(f"{type(model).__name__} is no stack of linear layers and activations; accepted is engine {OPACUS!r}")
    if engine == OPACUS or layers is None:
        return _opacus(model, loss, clip)
    return _stack(layers, loss, clip)


def stack_of(model: nn.Module) -> list[nn.Module] | None:
    """The layers of a model that is linear layers and elementwise functions in a row, all of it trained; else None."""
    layers = list(model) if type(model) is nn.Sequential else [model]
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    plain = all(type(layer) is nn.Linear or type(layer) in _ELEMENTWISE for layer in layers)
    parameters = [parameter for layer in linear for parameter in layer.parameters()]
    shared = len({id(parameter) for parameter in parameters}) != len(parameters)
    trained = all(parameter.requires_grad for parameter in parameters)
    return layers if linear and plain and trained and not shared else None


def _stack(layers: list[nn.Module], loss: Loss, clip: float) -> Clipper:
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]

    def clipped(features: Tensor, targets: Tensor) -> Tensor:
        inputs, outputs, value = [], [], features
        for layer in layers:
            if isinstance(layer, nn.Linear):
                inputs.append(value.detach())
                value = layer(value)
                outputs.append(value)
            else:
                value = layer(value)
        losses = _checked(loss(value, targets), len(features))
        signals = torch.autograd.grad(losses.sum(), outputs)
        squares = torch.zeros(len(features), device=features.device, dtype=torch.float64)
        for layer, given, signal in zip(linear, inputs, signals, strict=True):
            size = _square(given) + (1.0 if layer.bias is not None else 0.0)
            squares = squares + _square(signal) * size
        factor, dropped = _factor(squares, clip, features.dtype)
        for layer, given, signal in zip(linear, inputs, signals, strict=True):
            kept = signal * factor.unsqueeze(1)
            if dropped.any():
                kept, given = kept.masked_fill(dropped.unsqueeze(1), 0.0), given.masked_fill(dropped.unsqueeze(1), 0.0)
            layer.weight.grad = kept.T @ given
            if layer.bias is not None:
                layer.bias.grad = kept.sum(dim=0)
        return losses.detach()

    return clipped


def _square(rows: Tensor) -> Tensor:
    """Squared norms in double precision. A norm whose squares might have vanished or overflowed in single precision is taken
    again in double, where neither happens: one that came out as 0 would let its gradient through unclipped."""
    norms = torch.linalg.vector_norm(rows, dim=1)
    if not bool(((norms > _SMALL) & (norms < _LARGE)).all()):
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms.double().square()


def _factor(squares: Tensor, clip: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What each record's gradient is multiplied by, and the records whose gradient is no number: they count as 0, because an
    error would tell that they are there. So does a factor that single precision could not hold."""
    factor = (clip / (squares.sqrt() + _TINY)).clamp(max=1.0)
    dropped = ~torch.isfinite(squares)
    return factor.masked_fill(dropped | (factor < _LEAST), 0.0).to(dtype), dropped


def _opacus(model: nn.Module, loss: Loss, clip: float) -> Clipper:
    try:
        from opacus import GradSampleModule
        from opacus.validators import ModuleValidator
    except ModuleNotFoundError:
        raise BadInput("training this model needs the package opacus; install confide[train]") from None
    errors = ModuleValidator.validate(model, strict=False)
    if errors:
        raise BadInput(f"{type(model).__name__} cannot be trained record by record: {errors[0]}")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    per_record: Any = GradSampleModule(model, loss_reduction="sum")

    def clipped(features: Tensor, targets: Tensor) -> Tensor:
        per_record.zero_grad(set_to_none=True)
        losses = _checked(loss(per_record(features), targets), len(features))
        torch.autograd.backward(losses.sum())
        gradients: list[Tensor] = [parameter.grad_sample.flatten(1) for parameter in trained]  # type: ignore[attr-defined]
        factor, dropped = _factor(sum((_square(rows) for rows in gradients), torch.zeros(())), clip, features.dtype)
        for parameter, rows in zip(trained, gradients, strict=True):
            kept = rows.masked_fill(dropped.unsqueeze(1), 0.0) if dropped.any() else rows
            parameter.grad = (factor @ kept).view_as(parameter)
            parameter.grad_sample = None  # type: ignore[attr-defined]
        return losses.detach()

    return clipped


def _checked(losses: Tensor, records: int) -> Tensor:
    if losses.shape != (records,):
        raise BadInput(
            f"the loss of {records} records has shape {tuple(losses.shape)}; accepted is one number a record (reduction='none')"
        )
    return losses
