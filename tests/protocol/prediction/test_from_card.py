"""A predictor is made from cards that are signed and verify, and from no others."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide import CardWarning, Predictor, calibrate
from confide.protocol.cards.card import Card
from confide.protocol.errors import BadInput
from confide.protocol.simulated.embedded import predictions
from confide.simulation.arrays.calibrate import Calibration
from tests.support.cards.calibrated import calibrated, calibrated_card
from tests.support.cards.campaign_cards import forged
from tests.support.cards.cards import KEY, OTHER, make_card

PUBLIC = KEY.public_key().public_bytes_raw()


@pytest.fixture(scope="module")
def made() -> Calibration:
    probs, labels = predictions()
    return calibrated(probs[:4000], labels[:4000])


@pytest.fixture(scope="module")
def card(made: Calibration) -> Card:
    return made.card(KEY)


def test_a_card_predicts_what_its_calibration_predicts(
    made: Calibration, card: Card, tmp_path: Path
) -> None:
    """From the value, from its file, with the key as bytes and in hexadecimal."""
    probs = predictions()[0][4000:5000]
    (tmp_path / "card.json").write_text(card.to_json())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ways = [
            Predictor.from_card(card, key=PUBLIC),
            Predictor.from_card(tmp_path / "card.json", key=PUBLIC.hex()),
            Predictor.from_card(str(tmp_path / "card.json"), key=PUBLIC),
        ]
    for predictor in ways:
        assert np.array_equal(predictor.predict_set(probs), made.predictor.predict_set(probs))
        assert predictor.remarks == ()
        assert not predictor.trivial


def test_unsigned_changed_and_foreign_cards_are_refused(card: Card) -> None:
    """Nobody signed it, somebody else did, a value was changed, or its issuer lies."""
    lower = forged(card, (("released", "threshold"), 0.5))
    cases = {
        "is not signed": replace(card, key=b"", signature=b""),
        r"signer: expected": card.sign(OTHER),
        r"signature: ": replace(card, formal=lower.formal),
        r"does not verify": lower,
        "has no threshold": make_card(),
    }
    for words, other in cases.items():
        with pytest.raises(BadInput, match=words):
            Predictor.from_card(other, key=PUBLIC)


@pytest.mark.parametrize("key", ["", "00", "zz" * 32, b"short", PUBLIC.hex() + "00"])
def test_what_is_no_key_is_refused(card: Card, key: str | bytes) -> None:
    """With the key that was found."""
    with pytest.raises(BadInput, match=r"key is .*; accepted is a public key"):
        Predictor.from_card(card, key=key)


def test_a_simulation_must_be_accepted() -> None:
    """A seeded card says that nothing about it is private, and only then predicts."""
    probs, labels = predictions()
    seeded = calibrate(probs[:2000], labels[:2000], epsilon=4.0, seed=1).card(KEY)
    with pytest.raises(BadInput, match="SIMULATION ONLY"):
        Predictor.from_card(seeded, key=PUBLIC)
    with pytest.warns(CardWarning, match="SIMULATION ONLY"):
        predictor = Predictor.from_card(seeded, key=PUBLIC, simulation=True)
    assert predictor.predict_set(probs[:5]).shape == (5, 26)


def test_a_trivial_threshold_and_a_broken_contract_are_said() -> None:
    """A threshold of 1 predicts every label; the published method promises less than asked."""
    probs, labels = predictions()
    trivial = calibrated_card(probs[:50], labels[:50], epsilon=0.1)
    with pytest.warns(CardWarning, match="TRIVIAL"):
        predictor = Predictor.from_card(trivial, key=PUBLIC)
    assert predictor.trivial
    assert predictor.predict_set(probs[:3]).all()
    weak = calibrated_card(probs[:4000], labels[:4000], method="bits:published")
    with pytest.warns(CardWarning, match="NOT KEPT: coverage"):
        Predictor.from_card(weak, key=PUBLIC)


@pytest.mark.parametrize("by", ["owner", "group"])
@pytest.mark.parametrize("method", ["bits", "labels"])
def test_records_of_parts_that_are_not_covered_are_warned_of(method: str, by: str) -> None:
    """One threshold is everybody's, but nothing is claimed of a part with too few reports."""
    probs, labels = predictions()
    wards = np.repeat(["north", "south", "west"], [2000, 1960, 40])
    asked: dict[str, Any] = {"method": f"{method}:for-every-{by}", "epsilon": 8.0}
    asked |= {f"{by}_floor": 300, f"{by}s": wards}
    found = calibrated_card(probs[:4000], labels[:4000], **asked)
    name = "west" if by == "group" else "3"
    with pytest.warns(CardWarning, match=f"NOT COVERED: .* records of {by} {name}, of which"):
        predictor = Predictor.from_card(found, key=PUBLIC)
    assert not predictor.trivial
    asked[f"{by}s"] = np.repeat(["north", "south"], 2000)
    every = calibrated_card(probs[:4000], labels[:4000], **asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Predictor.from_card(every, key=PUBLIC).remarks == ()


def test_another_number_of_labels_is_refused(card: Card) -> None:
    """The card names 26 labels."""
    predictor = Predictor.from_card(card, key=PUBLIC)
    with pytest.raises(BadInput, match="3 columns; accepted is one for each of the card's 26"):
        predictor.predict_set([[0.2, 0.3, 0.5]])


def test_intervals_and_sets_are_not_mixed_up(card: Card) -> None:
    """A card of labels has no intervals, and one of numbers no sets."""
    predictor = Predictor.from_card(card, key=PUBLIC)
    with pytest.raises(BadInput, match="accepted is one of numbers"):
        predictor.predict_interval([1.0])
    rng = np.random.default_rng(0)
    targets = rng.normal(size=3000)
    numbers = calibrated_card(
        targets + rng.normal(size=3000), targets, score="absolute-residual bound=10"
    )
    predictor = Predictor.from_card(numbers, key=PUBLIC)
    with pytest.raises(BadInput, match="accepted is one of labels"):
        predictor.predict_set([[0.5, 0.5]])
    low, high = predictor.predict_interval([2.0])[0]
    half = 10 * predictor.threshold
    assert (low, high) == pytest.approx((2 - half, 2 + half))
    assert predictor.sizes([2.0]) == pytest.approx([2 * half])


def test_the_card_of_a_whole_file_is_read_once(card: Card, tmp_path: Path) -> None:
    """A file that is no card is refused with its name."""
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"format": "else"}))
    with pytest.raises(BadInput, match=r"card\.json: "):
        Predictor.from_card(path, key=PUBLIC)
    with pytest.raises(BadInput, match="cannot be read"):
        Predictor.from_card(tmp_path / "none.json", key=PUBLIC)


def test_a_card_without_its_signature_is_not_signed(card: Card, tmp_path: Path) -> None:
    """Where the whole field is missing, too."""
    (tmp_path / "card.json").write_text(json.dumps(card.content()))
    with pytest.raises(BadInput, match=r"card\.json: it is not signed"):
        Predictor.from_card(tmp_path / "card.json", key=PUBLIC)


def test_a_card_that_names_no_model_takes_results_only(card: Card) -> None:
    """A calibration of arrays without a model: any file would be another one, and is not read."""
    with pytest.raises(BadInput, match="names no model, so no file"):
        Predictor.from_card(card, key=PUBLIC, model="none.onnx")
