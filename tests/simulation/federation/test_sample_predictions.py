"""A federation ends by predicting with a card it made."""

from pathlib import Path
from string import ascii_uppercase

import numpy as np

import confide
from confide.protocol.simulated.embedded import predictions
from confide.protocol.simulated.settings import SIMULATION_KEY
from confide.simulation.federation.sample_predictions import sample_predictions

NOBODY = bytes(32)


def test_three_records_are_predicted_and_the_simulation_is_said(tmp_path: Path) -> None:
    """The sets are the predictor's, and the simulation stands above them in capitals."""
    probs, labels = predictions()
    made = confide.calibrate(probs[:3000], labels[:3000], epsilon=4.0, seed=1)
    (tmp_path / "bits.card.json").write_text(made.card(SIMULATION_KEY).to_json())
    few = slice(3000, 3003)
    said = sample_predictions(
        tmp_path, probs[few], labels[few], model=NOBODY, names=ascii_uppercase
    )
    assert "*** SIMULATION ONLY" in said
    sets = made.predictor.predict_labels(probs[few])
    for i, (chosen, label) in enumerate(zip(sets, labels[few].tolist(), strict=True)):
        letters = " ".join(ascii_uppercase[one] for one in chosen)
        hit = "in the set" if label in chosen else "NOT in the set"
        assert f"record {i + 1}: {{ {letters} }}; it is {ascii_uppercase[label]}, {hit}" in said


def test_intervals_are_predicted_too(tmp_path: Path) -> None:
    """The first card of a federation of numbers, with the truth beside its intervals."""
    targets = np.random.default_rng(1).normal(size=3_000)
    score = "absolute-residual bound=8"
    made = confide.calibrate(np.zeros(3_000), targets, score=score, epsilon=4.0, seed=1)
    (tmp_path / "bits.card.json").write_text(made.card(SIMULATION_KEY).to_json())
    said = sample_predictions(tmp_path, np.zeros(2), np.array([0.0, 99.0]), model=NOBODY, names="")
    assert "predicted with" in said
    low, high = made.predictor.predict_interval(np.zeros(1))[0]
    assert f"record 1: {low:.6g} to {high:.6g}; it is 0, inside" in said
    assert said.endswith("it is 99, NOT inside")


def test_without_a_useful_card_nothing_is_predicted(tmp_path: Path) -> None:
    """A trivial card, and one for another model, predict nothing."""
    probs, labels = predictions()
    made = confide.calibrate(probs[:50], labels[:50], epsilon=0.1, seed=1)
    (tmp_path / "bits.card.json").write_text(made.card(SIMULATION_KEY).to_json())
    for model in (NOBODY, bytes(range(32))):
        said = sample_predictions(
            tmp_path, probs[:1], labels[:1], model=model, names=ascii_uppercase
        )
        assert "nothing is predicted" in said
