"""Every record's gradient by Opacus, for all models whose layers Opacus supports."""

from typing import Any

import torch
from torch import Tensor, nn

from confide.client.training.engines.parts import (
    GradientPart,
    Loss,
    NotApplicable,
    Rows,
    checked,
    uneven,
)


class Hooks:
    """The model with Opacus' hooks, which stay in it."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        try:
            from opacus import GradSampleModule
            from opacus.validators import ModuleValidator
        except ModuleNotFoundError:
            raise NotApplicable(
                "the engine 'hooks' needs the package opacus; install confide[train]"
            ) from None
        errors = ModuleValidator.validate(model, strict=False)
        if errors:
            raise NotApplicable(
                f"{type(model).__name__} cannot be trained record by record by Opacus: "
                f"{errors[0]}; accepted are the engines 'functional' and 'single'"
            )
        self._loss = loss
        self._trained = {
            name: value for name, value in model.named_parameters() if value.requires_grad
        }
        self._model: Any = GradSampleModule(model, loss_reduction="sum")

    def trace(self, features: Tensor, targets: Tensor) -> tuple[Tensor, list[GradientPart]]:
        self._model.zero_grad(set_to_none=True)
        try:
            losses = checked(self._loss(self._model(features), targets), len(features))
            torch.autograd.backward(losses.sum())
        except Exception as error:
            self._forget()
            if isinstance(error, RuntimeError) and "modified inplace" in str(error):
                raise NotApplicable(
                    "the model changes the output of a layer in place, which Opacus' hooks do not "
                    "allow; accepted are inplace=False, or the engines 'functional' and 'single'"
                ) from error
            raise
        parts: list[GradientPart] = [
            Rows(_by_record(name, parameter, len(features)))
            for name, parameter in self._trained.items()
        ]
        for parameter in self._trained.values():
            parameter.grad, parameter.grad_sample = None, None  # type: ignore[attr-defined]
        return losses, parts

    def _forget(self) -> None:
        """Drop what Opacus kept of a pass that did not end; it would join the next one's."""
        for module in self._model.modules():
            module.__dict__.pop("activations", None)
            module.__dict__.pop("max_batch_len", None)
        for parameter in self._trained.values():
            parameter._forward_counter = 0  # type: ignore[attr-defined]
            parameter.__dict__.pop("_current_grad_sample", None)


def _by_record(name: str, parameter: nn.Parameter, records: int) -> Tensor:
    """A parameter's gradients, a row a record.

    Opacus makes a row of everything that its layer saw as a row.
    """
    gradients: Tensor | None = getattr(parameter, "grad_sample", None)
    if gradients is None or len(gradients) != records:
        raise uneven(name, records=records, found="none" if gradients is None else len(gradients))
    return gradients.flatten(1)
