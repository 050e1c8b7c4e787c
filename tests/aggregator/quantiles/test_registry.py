from dataclasses import dataclass
from typing import Any, Self

import pytest

from confide.aggregator.cards.contracts.contract import Configuration, Contract
from confide.aggregator.cards.contracts.search import search
from confide.aggregator.cards.issue import provenance
from confide.aggregator.quantiles.base import Mechanism, Privacy
from confide.aggregator.quantiles.histogram import Histogram
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.aggregator.quantiles.registry import MECHANISMS, needs_delta, register, within_budget
from confide.protocol.cards.card import Card
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.verify.counts import recompute
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy
from tests.support.owners.owners import NOW


@dataclass(frozen=True, kw_only=True)
class TopOfGrid(Mechanism):
    """Always the last bin: private for any budget, and never below the quantile."""

    name = "top-of-grid"

    @classmethod
    def within(cls, *, epsilon: float, delta: float, beta: float | None, **public: Any) -> Self:
        return cls(beta=beta, **public)

    @property
    def privacy(self) -> Privacy:
        return Privacy(self.adjacency, epsilon=0.0)

    def inflation(self, *, n: int, rank: int) -> int:
        return n + 1 - rank

    def choose(self, histogram: Histogram, rank: int, entropy: Entropy) -> int:
        return self.bins - 1


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(MECHANISMS, TopOfGrid.name, TopOfGrid)
    return TopOfGrid.name


def issued(mechanism: str) -> Card:
    contract = Contract("toy", 0.8, 0.01, 0.0, 1.0)
    grid = [Configuration(mechanism, 0.85, 1_000, 64, 0.0, 0.0, 1.0)]
    return Card(search(contract, grid), {}, provenance(plan=None, issued=str(NOW)), view="public")


def test_a_registered_mechanism_and_its_verifier_make_a_verified_card(
    toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but its class and its verifier is needed; without the verifier the card fails."""
    assert register(TopOfGrid) is TopOfGrid
    assert not needs_delta(toy)
    made = within_budget(toy, bins=64, beta=0.01, adjacency="add-remove", epsilon=1.0, delta=0.0)
    assert made == TopOfGrid(bins=64, beta=0.01, adjacency="add-remove")
    card = issued(toy)
    assert card.formal["selected"] == 0
    assert not all(finding.holds for finding in verify(card, unsigned=True))
    monkeypatch.setattr(recompute, "INFLATION", dict(recompute.INFLATION))
    recompute.register(toy, inflation=lambda claim: claim.entry["n"] + 1 - claim.rank)
    assert [finding for finding in verify(card, unsigned=True) if not finding.holds] == []


def test_a_name_is_registered_once() -> None:
    """A second mechanism of the same name is refused, the same one again is not."""

    class Impostor(TopOfGrid):
        name = RankExponential.name

    register(RankExponential)
    with pytest.raises(BadInput, match="registered already"):
        register(Impostor)
    assert MECHANISMS[RankExponential.name] is RankExponential
    assert not needs_delta("no such mechanism")
