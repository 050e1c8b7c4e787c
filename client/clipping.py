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
        squares = torch.zeros(len(features), device=features.device, dtype=features.dtype)
        for layer, given, signal in zip(linear, inputs, signals, strict=True):
            size = _square(given) + (1.0 if layer.bias is not None else 0.0)
            squares = squares + _square(signal) * size
        factor = (clip / (squares.sqrt() + _TINY)).clamp(max=1.0).unsqueeze(1)
        for layer, given, signal in zip(linear, inputs, signals, strict=True):
            kept = signal * factor
            layer.weight.grad = kept.T @ given
            if layer.bias is not None:
                layer.bias.grad = kept.sum(dim=0)
        return losses.detach()

    return clipped


def _square(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1).square()


def _opacus(model: nn.Module, loss: Loss, clip: float) -> Clipper:
    try:
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer
        from opacus.validators import ModuleValidator
    except ModuleNotFoundError:
        raise BadInput("training this model needs the package opacus; install confide[train]") from None
    errors = ModuleValidator.validate(model, strict=False)
    if errors:
        raise BadInput(f"{type(model).__name__} cannot be trained record by record: {errors[0]}")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    per_record: Any = GradSampleModule(model, loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(trained), noise_multiplier=0.0, max_grad_norm=clip, expected_batch_size=None, loss_reduction="sum"
    )

    def clipped(features: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        losses = _checked(loss(per_record(features), targets), len(features))
        torch.autograd.backward(losses.sum())
        optimizer.clip_and_accumulate()
        for parameter in optimizer.params:
            parameter.grad = parameter.summed_grad
        return losses.detach()

    return clipped


def _checked(losses: Tensor, records: int) -> Tensor:
    if losses.shape != (records,):
        raise BadInput(
            f"the loss of {records} records has shape {tuple(losses.shape)}; accepted is one number a record (reduction='none')"
        )
    return losses
