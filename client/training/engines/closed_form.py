"""The closed form of linear layers and elementwise functions in a row.

A layer's gradient for a record is the outer product of the backpropagated signal d and the input x,
so its squared norm is |d|^2 (|x|^2 + 1), bias included, and the clipped sum is one matrix product
(Goodfellow 2015). Softmax regression and least squares are stacks of one layer.
"""

import torch
from torch import Tensor, nn

from confide.client.training.engines.parts import (
    GradientPart,
    Loss,
    NotApplicable,
    Outer,
    Rows,
    checked,
)

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


class ClosedForm:
    """Inputs and signals of each layer of a stack."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        layers = stack_of(model)
        if layers is None:
            raise NotApplicable(
                f"{type(model).__name__} is no stack of linear layers and activations; accepted "
                "are the engines 'ghost', 'hooks', 'functional' and 'single'"
            )
        self._layers, self._loss = layers, loss
        self._linear = [layer for layer in layers if isinstance(layer, nn.Linear)]

    def trace(self, features: Tensor, targets: Tensor) -> tuple[Tensor, list[GradientPart]]:
        if features.dim() != 2:
            raise NotApplicable(
                f"records have {features.dim() - 1} dimensions; the closed form accepts one row of "
                "numbers a record"
            )
        inputs, outputs, value = [], [], features
        for layer in self._layers:
            if isinstance(layer, nn.Linear):
                inputs.append(value.detach())
                value = layer(value)
                outputs.append(value)
            else:
                # An activation that works in place would overwrite an output that autograd needs.
                value = layer(value.clone() if getattr(layer, "inplace", False) else value)
        losses = checked(self._loss(value, targets), len(features))
        parts: list[GradientPart] = []
        signals = torch.autograd.grad(losses.sum(), outputs)
        for layer, given, signal in zip(self._linear, inputs, signals, strict=True):
            parts.append(Outer(signal, given))
            if layer.bias is not None:
                parts.append(Rows(signal))
        return losses, parts


def stack_of(model: nn.Module) -> list[nn.Module] | None:
    """The layers of a model of linear layers and elementwise functions in a row; else None.

    All of it must be trained. A hook, or a weight that is computed from others (as in spectral
    normalisation), makes a layer another function.
    """
    layers = list(model) if type(model) is nn.Sequential else [model]
    if any(is_changed(part) for part in model.modules()):
        return None
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    plain = all(type(layer) is nn.Linear or type(layer) in _ELEMENTWISE for layer in layers)
    parameters = [parameter for layer in linear for parameter in layer.parameters()]
    shared = len({id(parameter) for parameter in parameters}) != len(parameters)
    trained = all(parameter.requires_grad for parameter in parameters)
    return layers if linear and plain and trained and not shared else None


def is_changed(module: nn.Module) -> bool:
    """Whether a module differs from its class: hooks, an own forward pass, parameters.

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
