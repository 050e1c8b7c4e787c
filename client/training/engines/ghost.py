"""Gradients from the inputs and signals of layers, after one backward pass that skips weights.

Hooks note the input and output of every layer with trained weights; automatic differentiation gives
the signals, that is the gradients of the outputs. A layer's formula (`layer_formulas`) turns input
and signal into the gradients of its weights. Where a record is one row to a linear layer no
gradient of a record is formed (ghost clipping, Li et al. 2022); elsewhere those of the layer are,
each added up within its record before any other record joins. So large terms of a record that
cancel each other leave no rounding error in the sum of the batch, as they would in a second,
weighted backward pass (book-keeping, Bu et al. 2023).
"""

from typing import Any

import torch
from torch import Tensor, nn

from confide.client.training.engines.closed_form import is_changed
from confide.client.training.engines.layer_formulas import FORMULAS, fits
from confide.client.training.engines.parts import GradientPart, Loss, NotApplicable, checked, uneven

_OTHERS = "accepted are the engines 'hooks', 'functional' and 'single'"


class Ghost:
    """Inputs and signals of each trained layer of a model of known layers."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self._model, self._loss = model, loss
        self._layers = _trained_layers(model)
        self._places = _places(model, self._layers)
        self._copies = any(getattr(part, "inplace", False) for part in model.modules())

    def trace(self, features: Tensor, targets: Tensor) -> tuple[Tensor, list[GradientPart]]:
        inputs: dict[str, Tensor] = {}
        outputs: dict[str, Tensor] = {}

        def note(name: str, given: tuple[Any, ...], found: Tensor) -> Tensor:
            if name in outputs:
                raise NotApplicable(f"{name} is called more than once; {_OTHERS}")
            if not given:
                raise NotApplicable(f"{name} is called with keywords alone; {_OTHERS}")
            inputs[name], outputs[name] = given[0].detach(), found
            # What follows may work in place.
            return found.clone() if self._copies else found

        handles = [
            layer.register_forward_hook(lambda _, given, found, name=name: note(name, given, found))
            for name, layer in self._layers.items()
        ]
        try:
            losses = checked(self._loss(self._model(features), targets), len(features))
        finally:
            for handle in handles:
                handle.remove()
        return losses, self._parts(losses, inputs, outputs)

    def _parts(
        self, losses: Tensor, inputs: dict[str, Tensor], outputs: dict[str, Tensor]
    ) -> list[GradientPart]:
        names, records = list(outputs), len(losses)
        for name in self._layers:
            if name not in outputs:
                raise uneven(name, records=records, found="none")
            if len(inputs[name]) != records:
                raise uneven(f"{name}.weight", records=records, found=len(inputs[name]))
            if outputs[name]._version:
                raise NotApplicable(f"the output of {name} is changed in place; {_OTHERS}")
        signals = torch.autograd.grad(
            losses.sum(), [outputs[name] for name in names], allow_unused=True
        )
        parts: dict[int, GradientPart] = {}
        for name, signal in zip(names, signals, strict=True):
            if signal is None:
                raise uneven(name, records=records, found="none")
            layer = self._layers[name]
            found = FORMULAS[type(layer)](layer, inputs[name], signal)
            for key, part in found.items():
                parts[id(getattr(layer, key))] = part
        return [parts[place] for place in self._places]


def _trained_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers with trained weights by name, if all of them have a formula."""
    found: dict[str, nn.Module] = {}
    for name, layer in model.named_modules():
        own = [value for value in layer.parameters(recurse=False) if value.requires_grad]
        if own and not (type(layer) in FORMULAS and fits(layer) and not is_changed(layer)):
            raise NotApplicable(
                f"{name or 'the model'} ({type(layer).__name__}) has weights without a formula; "
                f"{_OTHERS}"
            )
        if own:
            found[name] = layer
    if not found:
        raise NotApplicable(f"no layer has weights to train; {_OTHERS}")
    return found


def _places(model: nn.Module, layers: dict[str, nn.Module]) -> list[int]:
    """The trained parameters in their order, by identity; none is in two layers."""
    owned = [id(value) for layer in layers.values() for value in layer.parameters()]
    if len(set(owned)) != len(owned):
        raise NotApplicable(f"layers share weights; {_OTHERS}")
    return [id(value) for value in model.parameters() if value.requires_grad]
