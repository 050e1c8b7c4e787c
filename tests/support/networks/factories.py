"""An installed package with factories of networks."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from confide.client.policy import Policy
from confide.protocol.methods.training.network_terms import described
from confide.protocol.plan import Plan
from tests.support.training.learners import LEARNS, TERMS, TRAINING

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

class Binned(nn.Module):
    # Features in bins of a learned width, looked up in a table.
    def __init__(self, features, labels):
        super().__init__()
        self.width = nn.Linear(1, 1, bias=False)
        self.table = nn.Embedding(100, 4)
        self.last = nn.Linear(4 * features, labels)

    def forward(self, x):
        y = self.width(x.clamp(-1, 1).unsqueeze(2))
        bins = ((y.squeeze(2).detach().clamp(min=-8) + 8) * 4).long()
        return self.last((self.table(bins) + y).flatten(1))

def binned(features, labels):
    return Binned(features, labels)

class Table(nn.Module):
    # A table whose rows a look-up shortens in place, and which every record sees as a whole.
    def __init__(self, features, labels):
        super().__init__()
        self.table = nn.Embedding(4, 8, max_norm=2.0)
        nn.init.normal_(self.table.weight, std=0.1)
        self.last = nn.Linear(8, labels)

    def forward(self, x):
        found = self.table((x[:, 0].detach().clamp(-1, 1) * 2 + 2).long().clamp(0, 3))
        shares = torch.softmax(found @ self.table.weight.T, dim=1)
        return self.last(found + shares @ self.table.weight)

def shortened(features, labels):
    return Table(features, labels)

class Capacity(nn.Module):
    # Two experts; the first takes at most three quarters of a batch, as in switch layers. At its
    # own first weights, and at all weights of a trial, no batch is that one-sided.
    def __init__(self, features, labels):
        super().__init__()
        self.route = nn.Linear(features, 2)
        self.a = nn.Linear(features, labels)
        self.b = nn.Linear(features, labels)

    def forward(self, x):
        s = self.route(x)
        first = s[:, 0] > s[:, 1]
        if int(first.sum()) > max(8, int(0.75 * len(x))):
            first = torch.zeros_like(first)
        g = torch.softmax(s, 1)
        return torch.where(first.unsqueeze(1), self.a(x) * g[:, :1], self.b(x) * g[:, 1:])

def capacity(features, labels):
    return Capacity(features, labels)

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


def plan_of(package: Path, factory: str, **arguments: Any) -> Plan:
    text = " ".join(
        [f"{package.name}.models:{factory}", *(f"{k}={v}" for k, v in arguments.items())]
    )
    terms = replace(TERMS, **described(text, features=4, outputs=3))
    return replace(TRAINING, terms=terms)


def allowed(plan: Plan) -> Policy:
    assert plan.terms.code is not None
    return replace(LEARNS, architectures=frozenset({plan.terms.code}))


def vetted(plan: Plan) -> Policy:
    policy = allowed(plan)
    return replace(policy, vetted_architectures=policy.architectures)


def forget(name: str) -> None:
    """Make Python import a package again."""
    for loaded in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[loaded]
