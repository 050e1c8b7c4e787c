"""Cards of every track predict: each names its score, labels, model and threshold."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from confide import CardWarning, Predictor, read_model
from confide.protocol.cards.card import Card
from confide.protocol.errors import BadInput
from tests.support.cards.campaign_cards import counted, issued, reported
from tests.support.cards.cards import KEY
from tests.support.cards.central import NOISED, TRUSTED
from tests.support.cards.chained_cards import card_of, chained_card
from tests.support.cards.full_data import made
from tests.support.owners.owners import LABEL_PLAN, PLAN, changed
from tests.support.training.learners import people
from tests.support.training.trained_chain import chain

PUBLIC = KEY.public_key().public_bytes_raw()


def local(method: str) -> Card:
    plan = changed(PLAN if method == "bits" else LABEL_PLAN, epsilon=6.0, minimum_reports=0)
    return issued(plan, reported(plan, np.random.default_rng(3), n=3_000))


def central(variant: str) -> Card:
    plan = TRUSTED if variant == "trusted" else NOISED
    return issued(plan, counted(plan, np.random.default_rng(3)))


CARDS: dict[str, Callable[[], Card]] = {
    "bits": lambda: local("bits"),
    "labels": lambda: local("labels"),
    "central trusted": lambda: central("trusted"),
    "central owner-noised": lambda: central("owner-noised"),
    "full-data in one place": made,
}
CHAINED: dict[str, Callable[[], Card]] = {
    "bits": lambda: chained_card("bits"),
    "central": lambda: chained_card("central"),
    "full-data certified": lambda: card_of("certified"),
    "full-data owner-noised": lambda: card_of("certified-owner-noised"),
}


@pytest.mark.parametrize("track", CARDS)
def test_a_card_of_every_track_predicts(track: str) -> None:
    """The sets are those labels whose score is at most the card's threshold."""
    card = CARDS[track]()
    released = card.formal["released"]
    predictor = Predictor.from_card(card, key=PUBLIC)
    probs = np.random.default_rng(1).dirichlet(np.full(released["labels"], 0.3), size=50)
    sets = predictor.predict_set(probs)
    assert sets.shape == (50, released["labels"])
    for row, explained in zip(sets, predictor.explain(probs), strict=True):
        for reason in explained.reasons:
            assert row[reason.label] == (reason.score <= released["threshold"])


@pytest.mark.filterwarnings(f"ignore::{CardWarning.__module__}.{CardWarning.__name__}")
@pytest.mark.parametrize("track", CHAINED)
def test_the_card_of_a_chain_predicts_with_the_model_that_was_trained(
    track: str, tmp_path: Path
) -> None:
    """The file that the training wrote is the one that the card names; another is refused."""
    path = tmp_path / "model.onnx"
    path.write_bytes(chain().model)
    features = people(50, 9)[0]
    predictor = Predictor.from_card(CHAINED[track](), key=PUBLIC, model=path)
    plain = Predictor.from_card(CHAINED[track](), key=PUBLIC)
    results = read_model(path)(features, width=None)
    assert np.array_equal(predictor.predict_set(features), plain.predict_set(results))
    path.write_bytes(chain().model + b"\x00")
    with pytest.raises(BadInput, match="the model has SHA-256"):
        Predictor.from_card(CHAINED[track](), key=PUBLIC, model=path)


def test_a_rule_that_promises_less_is_said() -> None:
    """The published rules of full-data campaigns fail their contract, and the predictor warns."""
    for variant in ("dpcp", "scp-f", "scp-a"):
        with pytest.warns(CardWarning, match="NOT KEPT"):
            Predictor.from_card(card_of(variant), key=PUBLIC)
