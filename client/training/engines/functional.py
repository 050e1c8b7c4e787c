"""Every record's gradient by automatic differentiation of a function of one record.

`Functional` maps the function over a micro-batch (torch.func.vmap). Operations that torch cannot
map, such as recurrent layers, are left to `Single`, which takes one record after another.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from confide.client.training.engines.parts import GradientPart, Loss, NotApplicable, Rows, checked


class Functional:
    """The gradient of one record, mapped over all."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self._model = model
        self._weights = {
            name: value for name, value in model.named_parameters() if value.requires_grad
        }

        def one(weights: dict[str, Tensor], features: Tensor, target: Tensor) -> Tensor:
            own = copied_state(model) | weights
            outputs = functional_call(model, own, (features.unsqueeze(0),))
            return checked(loss(outputs, target.unsqueeze(0)), 1).squeeze(0)

        self._gradients = vmap(grad_and_value(one), in_dims=(None, 0, 0), randomness="different")

    def trace(self, features: Tensor, targets: Tensor) -> tuple[Tensor, list[GradientPart]]:
        weights = {name: value.detach().clone() for name, value in self._weights.items()}
        inside: list[str] = []
        handles = _note_layers(self._model, inside)
        try:
            # Attention by products of matrices; torch cannot map its other kernels.
            with sdpa_kernel(SDPBackend.MATH):
                gradients, losses = self._gradients(weights, features, targets)
        except RuntimeError as error:
            raise NotApplicable(
                f"torch.func cannot map {inside[-1] if inside else 'the loss'} over records: "
                f"{str(error).splitlines()[0]}; accepted is the engine 'single'"
            ) from error
        finally:
            for handle in handles:
                handle.remove()
        return losses, [Rows(gradients[name].flatten(1)) for name in self._weights]


class Single:
    """The gradient of one record after another."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self._model, self._loss = model, loss
        self._names = [name for name, value in model.named_parameters() if value.requires_grad]

    def trace(self, features: Tensor, targets: Tensor) -> tuple[Tensor, list[GradientPart]]:
        found = [self._one(features[i : i + 1], targets[i : i + 1]) for i in range(len(features))]
        rows = [torch.stack(parts) for parts in zip(*(parts for _, parts in found), strict=True)]
        return torch.cat([losses for losses, _ in found]), [Rows(part) for part in rows]

    def _one(self, features: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
        # Copies, because a kernel may round by where in memory its input lies, and because a layer
        # may change its state in place, at weights that somebody else chose.
        own = copied_state(self._model)
        weights = [own[name].requires_grad_() for name in self._names]
        outputs = functional_call(self._model, own, (features.clone(),))
        losses = checked(self._loss(outputs, targets.clone()), 1)
        gradients = torch.autograd.grad(
            losses.sum(), weights, allow_unused=True, materialize_grads=True
        )
        return losses.detach(), [gradient.flatten() for gradient in gradients]


def copied_state(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers, so that no record meets what another one changed."""
    state = (*model.named_parameters(), *model.named_buffers())
    return {name: value.detach().clone() for name, value in state}


def _note_layers(model: nn.Module, inside: list[str]) -> list[Any]:
    """Keep the layers that a forward pass is in, by name and class, innermost last."""
    handles: list[Any] = []
    for name, layer in model.named_modules():
        own = f"{name or 'the model'} ({type(layer).__name__})"
        handles.append(layer.register_forward_pre_hook(lambda *_, own=own: inside.append(own)))
        handles.append(layer.register_forward_hook(lambda *_: inside.pop() and None))
    return handles
