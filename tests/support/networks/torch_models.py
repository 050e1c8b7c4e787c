"""Small torch models of many kinds of layers, each with the shape of its records."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from confide.client.training.engines.probe import made_up

LABELS = 3


class Words(nn.Module):
    """The mean of embedded words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.score = nn.Embedding(5, 6, padding_idx=1), nn.Linear(6, LABELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.words(x.long())).mean(1))


class Sequences(nn.Module):
    """Layers that see a record as several rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 8), nn.LayerNorm(8)
        self.score = nn.Linear(8, LABELS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.relu(self.norm(self.first(x)))).mean(1)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.score = nn.Linear(4, LABELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.encoder(x).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory, self.score = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, LABELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.memory(x)[0][:, -1])


class Twice(nn.Module):
    """One layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.score = nn.Linear(4, 4), nn.Linear(4, LABELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


def images(*, inplace: bool = True) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, dilation=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=inplace),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, (1, 2), bias=False),
        nn.Flatten(),
        nn.Linear(16, LABELS),
    )


def signals() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, stride=2, padding=2, dilation=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, 6),
        nn.LayerNorm(6),
        nn.Linear(6, LABELS),
    )


def half_frozen() -> nn.Module:
    model = images(inplace=False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name not in ("0.weight", "1.bias")
    return model


@dataclass(frozen=True)
class Kind:
    """A model, the shape of a record, and the engine that `auto` takes."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    engine: str
    whole: bool = False

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make().double()

    def like(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Made-up rows of the shape and kind of the records."""
        features = np.zeros((1, *self.shape), dtype=np.int64 if self.whole else np.float64)
        return made_up(features, np.zeros(1, dtype=np.int64), device)

    def records(self, n: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        chance = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, LABELS, (n,), generator=chance)
        if self.whole:
            return torch.randint(0, 5, (n, *self.shape), generator=chance).double(), labels
        return torch.randn((n, *self.shape), generator=chance, dtype=torch.float64), labels


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, LABELS))


KINDS = {
    "mlp": Kind(_mlp, (4,), "stack"),
    "images": Kind(images, (2, 8, 12), "ghost"),
    "half frozen": Kind(half_frozen, (2, 8, 12), "ghost"),
    "signals": Kind(signals, (2, 7), "ghost"),
    "words": Kind(Words, (6,), "ghost", whole=True),
    "sequences": Kind(Sequences, (5, 4), "ghost"),
    "twice": Kind(Twice, (4,), "hooks"),
    "transformer": Kind(Transformer, (5, 4), "functional"),
    "recurrent": Kind(Recurrent, (5, 4), "single"),
}

# Opacus gives padding words a gradient, and no engine but the last maps a recurrent layer.
REFUSED = {
    ("words", "hooks"): "is not its gradient",
    ("twice", "ghost"): "inner is called more than once",
    ("images", "hooks"): "in place",
    ("transformer", "ghost"): r"encoder.self_attn \(MultiheadAttention\) has weights",
    ("transformer", "hooks"): "do not support nn.MultiheadAttention",
    ("recurrent", "ghost"): r"memory \(LSTM\) has weights without a formula",
    ("recurrent", "hooks"): "do not support nn.LSTM",
    ("recurrent", "functional"): r"torch.func cannot map memory \(LSTM\) over records",
} | {(kind, "stack"): "no stack of linear layers" for kind in KINDS if kind != "mlp"}
