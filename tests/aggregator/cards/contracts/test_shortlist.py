"""The short list of a contract, run on records that may be looked at."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from confide.aggregator.cards.contracts.contract import Configuration, Contract, read_grid
from confide.aggregator.cards.contracts.search import search_and_try
from confide.aggregator.cards.contracts.shortlist import ShortlistTrial
from confide.protocol.cards.card import Card, parse_card
from confide.protocol.cards.page import as_html
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import headline
from confide.protocol.errors import BadInput
from confide.protocol.scores.registry import find_score
from confide.protocol.simulated.embedded import predictions
from tests.support.cards.cards import CONTRACT, GRID, KEY, ORIGIN, broken


def tried(
    contract: Contract = CONTRACT, grid: list[Configuration] = GRID, **changes: Any
) -> tuple[Card, Any]:
    probs, labels = predictions()
    trial = ShortlistTrial(
        find_score(changes.pop("score", "hps")), probs, labels, **{"seed": 1} | changes
    )
    formal, measured = search_and_try(contract, grid, trial)
    return Card(formal, measured, ORIGIN, view="public").sign(KEY), trial


def test_the_evaluation_of_the_paper() -> None:
    """CARD Table 2: of 36 configurations, 18 feasible, 3 are run 3 times each, not 108; the card
    has what was measured and verifies, also after it was written and read."""
    runs = []
    card, _ = tried(progress=lambda: runs.append(1))
    rows = card.diagnostic["evaluated"]
    assert [row["configuration"] for row in rows] == card.formal["shortlist"]
    assert (len(rows), len(runs)) == (3, 9)
    assert card.diagnostic["accuracy"] == pytest.approx(0.698, abs=0.001)
    for row in rows:
        # The level is 0.749; a mean over three runs deviates by less than 0.03 (n = 4,000).
        assert row["coverage"] > 0.72
        assert row["observed_inflation"] >= 0
    assert not broken(parse_card(card.to_json()))
    page = as_html(card, verify(card))
    assert "Run 3 times on 16,000 records that may be looked at" in page
    assert "the filled one, on the line, is selected" in page


def test_a_cheaper_configuration_is_selected_if_sets_grow_by_no_more_than_the_tolerance() -> None:
    """Noise on 100 counts is felt at epsilon 2: the tolerance decides what that is worth."""
    by = {
        tolerance: (card := tried(tolerance=tolerance)[0]).formal["searched"][
            card.formal["selected"]
        ]["epsilon_calibration"]
        for tolerance in (0.0, 100.0)
    }
    assert by[100.0] == 2.0
    assert by[0.0] > 2.0


def test_grids_are_told_apart_by_what_was_measured() -> None:
    """APS scores crowd at 1: a uniform grid of 1,024 thresholds is trivial there, with the same
    certified inflation as a logit grid."""
    contract = replace(CONTRACT, coverage=0.9)
    grid = [
        Configuration("rank-exponential", 0.901, 4000, 1024, 4.0, 1e-5, 1.0, grid=name)
        for name in ("uniform", "logit")
    ]
    card, _ = tried(contract, grid, score="aps")
    uniform, logit = card.diagnostic["evaluated"]
    assert uniform["mean_size"] == 26
    assert logit["mean_size"] < 12
    assert card.formal["selected"] == 1
    assert search_and_try(contract, grid, None)[0]["selected"] == 0
    assert not broken(card)


@pytest.mark.parametrize("score", ["hps", "aps", "aps-randomized", "raps", "saps", "top-k"])
def test_no_score_is_trivial_on_the_grid_that_a_contract_has_by_default(score: str) -> None:
    """A contract that names no grid, on the embedded letters: fewer labels than all 26."""
    values = {"mechanism": "rank-exponential", "gamma": 0.901, "n": 4000, "bins": 256}
    budgets = {"epsilon_train": 4.0, "delta_train": 1e-5, "epsilon_calibration": 1.0}
    contract = replace(CONTRACT, coverage=0.9)
    card, _ = tried(contract, read_grid(values | budgets), score=score, runs=1)
    assert card.diagnostic["evaluated"][0]["mean_size"] < 20
    assert headline(card).startswith("CAN BE KEPT")


def test_owners_who_noise_their_counts_are_tried_too() -> None:
    """More owners add more noise, which raises thresholds and never loses the rank here: beta is
    0.001, so four runs of two configurations fail with probability below 0.01."""
    contract = replace(CONTRACT, delta=2e-5)
    grid = [
        Configuration("gaussian-search", 0.75, 8000, 64, 0.0, 0.0, eps, 1e-5, "owners", owners)
        for eps, owners in ((2.0, 2), (4.0, 200))
    ]
    card, _ = tried(contract, grid, runs=4)
    few, many = (row["observed_inflation"] for row in card.diagnostic["evaluated"])
    assert 0 <= few < many
    assert not broken(card)


def test_intervals_are_tried_by_their_width() -> None:
    """The standard normal's 75 % interval is 2.3 wide; the widths are in units of the targets."""
    rng = np.random.default_rng(5)
    truth = rng.normal(size=12_000)
    trial = ShortlistTrial(find_score("absolute-residual bound=8"), np.zeros(12_000), truth, seed=1)
    grid = [Configuration("rank-exponential", 0.751, 4000, 1024, 0.0, 0.0, 1.0)]
    _, measured = search_and_try(CONTRACT, grid, trial)
    assert measured["evaluated"][0]["mean_size"] == pytest.approx(2.3, abs=0.15)
    assert "accuracy" not in measured


def test_lies_about_the_selection_do_not_verify() -> None:
    """A configuration that is not on the short list, a row that is missing, sizes that select
    another one, and measurements on a card that claims none."""
    card, _ = tried(tolerance=0.0)
    chosen, shortlist = card.formal["selected"], card.formal["shortlist"]
    other = next(i for i in shortlist if i != chosen)
    outside = next(i for i in range(36) if i not in shortlist)

    def lie(formal: dict[str, Any], diagnostic: dict[str, Any]) -> list[str]:
        return broken(replace(card, formal=formal, diagnostic=diagnostic).sign(KEY))

    assert "selected" in lie(card.formal | {"selected": other}, card.diagnostic)
    assert "selected" in lie(card.formal | {"selected": outside}, card.diagnostic)
    smaller = copy.deepcopy(card.diagnostic)
    smaller["evaluated"][shortlist.index(other)]["mean_size"] = 0.1
    assert lie(card.formal, smaller) == ["selected"]
    fewer = card.diagnostic | {"evaluated": card.diagnostic["evaluated"][-1:]}
    assert "diagnostic/evaluated/configurations" in lie(card.formal, fewer)
    assert "diagnostic/evaluated" in lie(card.formal, {})
    unsaid = card.formal | {"selected_by": "certified inflation"}
    assert "diagnostic/evaluated" in lie(unsaid, card.diagnostic)


def test_too_few_records_are_refused_and_an_infeasible_contract_runs_nothing() -> None:
    """The records that measure a configuration are not those that it calibrates on."""
    probs, labels = predictions()
    few = ShortlistTrial(find_score("hps"), probs[:4000], labels[:4000])
    with pytest.raises(BadInput, match=r"4,000 records, and configuration \d+ calibrates on 4,000"):
        search_and_try(CONTRACT, GRID, few)
    formal, measured = search_and_try(replace(CONTRACT, coverage=0.9), GRID, few)
    assert (formal["selected"], measured) == (None, {})
