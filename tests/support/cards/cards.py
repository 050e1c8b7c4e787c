"""Cards that tests make, edit and verify."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.cards.contracts.contract import Configuration, Contract
from confide.aggregator.cards.contracts.search import search
from confide.aggregator.cards.issue import campaign_card, provenance
from confide.aggregator.cli.card import app
from confide.protocol.cards.card import Card
from confide.protocol.cards.verify.card import verify
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SeededEntropy
from tests.support.owners.owners import LABEL_PLAN, NOW, PLAN, asking, changed, owner, signed

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
ORIGIN = provenance(plan=None, issued="2026-11-16T12:00:00+00:00")
CONTRACT = Contract(
    "paper", coverage=0.7, beta=1e-3, epsilon_train=4.0, epsilon_calibration=8.0, delta=1e-5
)
GRID = [
    Configuration("laplace-counts", gamma, n, 100, 4.0, 1e-5, epsilon)
    for gamma in (0.55, 0.65, 0.75, 0.85)
    for n in (1000, 2000, 4000)
    for epsilon in (2.0, 4.0, 8.0)
]


def make_card(contract: Contract = CONTRACT, grid: list[Configuration] = GRID) -> Card:
    return Card(search(contract, grid), {}, ORIGIN, view="public").sign(KEY)


def broken(card: Card, **arguments: Any) -> list[str]:
    return [finding.clause for finding in verify(card, **arguments) if not finding.holds]


def edits(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every leaf of a layer."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from edits(inner, (*place, name))
    elif isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from edits(inner, (*place, i))
    else:
        yield place


def edited(formal: Any, place: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(formal)
    inner = changed
    for name in place[:-1]:
        inner = inner[name]
    old = inner[place[-1]]
    inner[place[-1]] = (
        not old
        if isinstance(old, bool)
        else old + 1
        if isinstance(old, int)
        else old * 0.99 or 0.01
        if isinstance(old, float)
        else "other"
        if isinstance(old, str)
        else [0]
        if old == []
        else 1
    )
    return changed


def campaign(
    tmp_path: Path, *, method: str = "bits", randomness: str = OPERATING_SYSTEM, **changes: Any
) -> Card:
    """Return the card of a campaign of seeded owners, which is therefore repeatable.

    The card is marked as unseeded, like that of a real campaign.
    """
    plan = changed(PLAN if method == "bits" else LABEL_PLAN, **changes)
    tmp_path.mkdir(exist_ok=True)
    owners = [
        owner(tmp_path / str(seed), seed=seed, entropy=SeededEntropy("owner", seed))
        for seed in range(3)
    ]
    outcome = run_campaign(plan, asking(signed(plan), owners))
    outcome = replace(outcome, certificate=replace(outcome.certificate, randomness=randomness))
    return campaign_card(plan, outcome, diagnostic={"coverage": 0.91}, issued=NOW).sign(KEY)


def infeasible() -> tuple[Contract, list[Configuration]]:
    contract = replace(CONTRACT, coverage=0.8, epsilon_calibration=1.0, max_inflation=0.02)
    return contract, [
        Configuration("rank-exponential", gamma, 500, 256, 4.0, 1e-5, 0.5) for gamma in (0.75, 0.81)
    ]


def command(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
