"""A public temperature is a constant of every score of labels, with every method."""

from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

import confide
from confide.protocol.cards.verify.card import verify
from confide.protocol.scores.registry import SCORES
from tests.support.truth.known import label_population

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)


@pytest.fixture(scope="module")
def population() -> tuple[NDArray[Any], NDArray[Any]]:
    return label_population(4_000, 6, np.random.default_rng(4), ties=False)


@pytest.mark.parametrize("method", ["central", "bits", "labels"])
@pytest.mark.parametrize("score", list(SCORES))
def test_a_temperature_is_part_of_every_score(score: str, method: str, population: Any) -> None:
    """The card names it and verifies, and its sets are those of probabilities at that temperature.

    The threshold of top-k alone is the same, because ranks do not change.
    """
    probs, labels = population
    made = confide.calibrate(
        probs, labels, score=f"{score} temperature=2", method=method, epsilon=4.0, seed=1
    )
    card = made.card(KEY)
    assert [found for found in verify(card) if not found.holds] == []
    assert card.formal["released"]["score"].endswith("temperature=2")
    flat = probs**0.5 / (probs**0.5).sum(axis=1, keepdims=True)
    plain = confide.calibrate(flat, labels, score=score, method=method, epsilon=4.0, seed=1)
    assert made.threshold == pytest.approx(plain.threshold, abs=0.01)
