"""What a federation ends with: a few records that took no part, predicted with a card it made."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from confide.protocol.cards.card import RANDOMNESS, read_card
from confide.protocol.prediction.predictor import CardWarning, Predictor
from confide.protocol.simulated import SIMULATION_PUBLIC

SIGNED = "the key that signed this card is public: anybody can make such a card"


def usable_card(folder: Path, model: bytes) -> Path | None:
    """The last card of a folder for this model that keeps its contract, but for its randomness."""
    for path in sorted(folder.glob("*.card.json"), reverse=True):
        formal = read_card(path).formal
        kept = not set(formal["failed"]) - {RANDOMNESS}
        if kept and formal["released"]["model"] == model.hex():
            return path
    return None


def sample_predictions(
    folder: Path,
    results: NDArray[Any],
    labels: NDArray[Any],
    *,
    model: bytes,
    names: Sequence[str],
) -> str:
    """Predict these records with a card of the folder; returns what is printed about it."""
    path = usable_card(folder, model)
    if path is None:
        return "no card is for this model and keeps its contract, so nothing is predicted"
    with warnings.catch_warnings():
        # They stand in what is printed.
        warnings.simplefilter("ignore", CardWarning)
        predictor = Predictor.from_card(path, key=SIMULATION_PUBLIC, simulation=True)
    lines = [f"predicted with {path}:"]
    lines += [f"  *** {remark} ***" for remark in (*predictor.remarks, SIGNED)]
    for i, (chosen, label) in enumerate(
        zip(predictor.predict_labels(results), labels.tolist(), strict=True)
    ):
        inside = " ".join(names[one] for one in chosen) or "(none)"
        hit = "in the set" if label in chosen else "NOT in the set"
        lines.append(f"  record {i + 1}: {{ {inside} }}; it is {names[label]}, {hit}")
    return "\n".join(lines)
