"""Grids whose edges stand in the plan: even on the provider's records, or given in a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

import confide
from confide.protocol.cards.verify.card import verify
from confide.protocol.errors import BadInput
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.plan import Plan
from confide.protocol.scores.registry import find_label_score
from confide.simulation.arrays.calibrate import Calibration
from tests.support.truth.known import label_population

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)


@pytest.fixture(scope="module")
def population() -> tuple[NDArray[Any], NDArray[Any]]:
    return label_population(3_000, 8, np.random.default_rng(2), ties=False)


@pytest.fixture
def provided(tmp_path: Path) -> Path:
    """Records of the provider's own."""
    probs, labels = label_population(1_000, 8, np.random.default_rng(3), ties=False)
    np.savez(tmp_path / "own.npz", probs=probs, label=labels)
    return tmp_path / "own.npz"


def calibrated(population: Any, **settings: Any) -> Calibration:
    return confide.calibrate(*population, score="aps", method="central", **settings)


def terms(made: Calibration) -> CentralTerms:
    assert isinstance(made.plan, Plan)
    return CentralTerms.of(Plan.from_bytes(made.plan.to_bytes()).terms)


def test_a_grid_is_even_in_size_on_the_providers_records(population: Any, provided: Path) -> None:
    """The plan holds the edges, between which the mean set grows alike; its card verifies."""
    made = calibrated(population, grid="even", provider_data=str(provided), bins=200)
    asked = terms(made)
    assert (asked.grid, asked.bins) == ("even", len(asked.given_edges))
    assert 150 < asked.bins <= 200
    assert made.threshold in asked.given_edges
    scores = find_label_score("aps").all_scores(np.load(provided)["probs"].astype(np.float32))
    sizes = [float((scores <= edge).mean()) for edge in asked.given_edges]
    # Near 1 many scores of single precision are the same number.
    assert np.quantile(np.diff(sizes[:-1]), 0.95) < 2 / 200
    card = made.card(KEY)
    assert [found for found in verify(card) if not found.holds] == []
    assert card.formal["searched"][0]["grid"] == "even"


def test_given_edges_are_the_thresholds_to_choose_from(population: Any, tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0.25, 0.5\n0.75 0.9\n0.95 0.99 1\n")
    made = calibrated(population, grid="given", edges_file=str(tmp_path / "edges.txt"))
    assert terms(made).given_edges == (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
    assert made.threshold in terms(made).given_edges
    assert [found for found in verify(made.card(KEY)) if not found.holds] == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"grid": "given"}, "accepted is a file with grid given"),
        ({"grid": "even"}, "accepted is this with provider-data"),
        ({"grid": "given", "edges_file": "none.txt"}, "cannot be read as numbers"),
        ({"grid": "mixed", "edges_file": "none.txt"}, "none with any other"),
    ],
)
def test_a_grid_without_its_file_is_refused(
    population: Any, settings: dict[str, str], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        calibrated(population, **settings)


def test_edges_that_do_not_ascend_to_one_are_refused(population: Any, tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0.5 0.4 1")
    with pytest.raises(BadInput, match="ascend from above 0 to 1"):
        calibrated(population, grid="given", edges_file=str(tmp_path / "edges.txt"))
