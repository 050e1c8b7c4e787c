"""Gradients of a layer's weights for each record, from the layer's input and its output's gradient.

A formula gives a part for each trained parameter of a layer, by name. The first dimension of input
and signal is the records; sums within a record are its own.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from confide.client.training.engines.parts import (
    GradientPart,
    NotApplicable,
    Outer,
    Rows,
    Scattered,
)

Formula = Callable[[Any, Tensor, Tensor], dict[str, GradientPart]]


def fits(layer: Any) -> bool:
    """Whether a layer's options are those that its formula is for."""
    if isinstance(layer, nn.Embedding):
        # Renormalised tables change in a forward pass, and frequencies are those of a batch.
        return layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
    if isinstance(layer, (nn.Conv1d, nn.Conv2d)):
        return (
            layer.groups == 1
            and layer.padding_mode == "zeros"
            and not isinstance(layer.padding, str)
            and set(layer._parameters) == {"weight", "bias"}
        )
    return True


def _linear(layer: nn.Linear, given: Tensor, signal: Tensor) -> dict[str, GradientPart]:
    if given.dim() == 2:
        return _kept(layer, weight=lambda: Outer(signal, given), bias=lambda: Rows(signal))
    given, signal = given.flatten(1, -2), signal.flatten(1, -2)
    return _kept(
        layer,
        weight=lambda: Rows(torch.bmm(signal.transpose(1, 2), given).flatten(1)),
        bias=lambda: Rows(signal.sum(dim=1)),
    )


def _convolution(layer: Any, given: Tensor, signal: Tensor) -> dict[str, GradientPart]:
    if given.dim() != 4:
        raise NotApplicable(
            f"a {type(layer).__name__} has an input of {given.dim()} dimensions; accepted are "
            "images with records and channels"
        )
    signal = signal.flatten(2)

    def weight() -> GradientPart:
        patches = F.unfold(
            given,
            layer.kernel_size,
            dilation=layer.dilation,
            padding=layer.padding,
            stride=layer.stride,
        )
        return Rows(torch.bmm(signal, patches.transpose(1, 2)).flatten(1))

    return _kept(layer, weight=weight, bias=lambda: Rows(signal.sum(dim=2)))


def _sequence_convolution(layer: Any, given: Tensor, signal: Tensor) -> dict[str, GradientPart]:
    if given.dim() != 3:
        raise NotApplicable(
            f"a {type(layer).__name__} has an input of {given.dim()} dimensions; accepted are "
            "sequences with records and channels"
        )

    def weight() -> GradientPart:
        patches = F.unfold(
            given.unsqueeze(2),
            (1, *layer.kernel_size),
            dilation=(1, *layer.dilation),
            padding=(0, *layer.padding),
            stride=(1, *layer.stride),
        )
        return Rows(torch.bmm(signal, patches.transpose(1, 2)).flatten(1))

    return _kept(layer, weight=weight, bias=lambda: Rows(signal.sum(dim=2)))


def _embedding(layer: nn.Embedding, given: Tensor, signal: Tensor) -> dict[str, GradientPart]:
    """Adds up the signals of a word that a record holds more than once, at its first place."""
    words = given.reshape(len(given), -1)
    signal = signal.reshape(*words.shape, layer.embedding_dim)
    same = words.unsqueeze(2) == words.unsqueeze(1)
    dropped = same.tril(-1).any(dim=2)
    if layer.padding_idx is not None:
        dropped |= words == layer.padding_idx
    rows = torch.bmm(same.to(signal.dtype), signal).masked_fill(dropped.unsqueeze(2), 0.0)
    return {"weight": Scattered(rows, words, layer.num_embeddings)}


def _group_norm(layer: nn.GroupNorm, given: Tensor, signal: Tensor) -> dict[str, GradientPart]:
    shape = (len(given), layer.num_channels, -1)

    def weight() -> GradientPart:
        scaled = F.group_norm(given, layer.num_groups, eps=layer.eps)
        return Rows((signal * scaled).reshape(shape).sum(dim=2))

    return _kept(layer, weight=weight, bias=lambda: Rows(signal.reshape(shape).sum(dim=2)))


def _layer_norm(layer: nn.LayerNorm, given: Tensor, signal: Tensor) -> dict[str, GradientPart]:
    shape = (len(given), -1, layer.weight.numel())

    def weight() -> GradientPart:
        scaled = F.layer_norm(given, layer.normalized_shape, eps=layer.eps)
        return Rows((signal * scaled).reshape(shape).sum(dim=1))

    return _kept(layer, weight=weight, bias=lambda: Rows(signal.reshape(shape).sum(dim=1)))


def _kept(layer: nn.Module, **parts: Callable[[], GradientPart]) -> dict[str, GradientPart]:
    """The parts of the parameters that are trained."""
    found = {name: getattr(layer, name) for name in parts}
    return {
        name: parts[name]()
        for name, value in found.items()
        if value is not None and value.requires_grad
    }


FORMULAS: dict[type[nn.Module], Formula] = {
    nn.Linear: _linear,
    nn.Conv1d: _sequence_convolution,
    nn.Conv2d: _convolution,
    nn.Embedding: _embedding,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
