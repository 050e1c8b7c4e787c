"""An installed package with factories of networks."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = """
import torch
from torch import nn

def plain(features, labels, hidden=5):
    return nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, labels))

def attention(features, labels):
    return Attention(features, labels)

class Attention(nn.Module):
    def __init__(self, features, labels):
        super().__init__()
        self.embedding = nn.Linear(1, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.last = nn.Linear(8, labels)

    def forward(self, x):
        return self.last(self.layer(self.embedding(x.unsqueeze(2))).mean(dim=1))

class Mixing(nn.Module):
    def __init__(self, features, labels):
        super().__init__()
        self.last = nn.Linear(features, labels)

    def forward(self, x):
        return self.last(x - x.mean(0))

def mixing(features, labels):
    return Mixing(features, labels)

def batch_norm(features, labels):
    return nn.Sequential(nn.BatchNorm1d(features), nn.Linear(features, labels))

def no_module(features, labels):
    return 3

def convolutions(features, labels, side=4, channels=4):
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)), nn.Conv2d(1, channels, 3, padding=1),
        nn.GroupNorm(1, channels), nn.ReLU(), nn.Flatten(), nn.Linear(channels * features, labels),
    )
"""


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder of an installed package; its name is new, so nothing of it is imported."""
    name = f"networks_of_{folder.name.replace('-', '_')}"
    package = write_package(folder / "site" / name)
    monkeypatch.syspath_prepend(str(package.parent))
    importlib.invalidate_caches()
    yield package
    forget(name)


def write_package(folder: Path) -> Path:
    """Write a package with these factories."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "models.py").write_text(SOURCE)
    return folder


def forget(name: str) -> None:
    """Make Python import a package again."""
    for loaded in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[loaded]
