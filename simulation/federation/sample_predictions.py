"""What a federation ends with: a few records that took no part, predicted with a card it made."""

import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from confide.protocol.cards.card import RANDOMNESS, read_card
from confide.protocol.prediction.predictor import CardWarning, Predictor
from confide.protocol.simulated.settings import SIMULATION_PUBLIC

SIGNED = "the key that signed this card is public: anybody can make such a card"


def usable_card(folder: Path, model: bytes) -> Path | None:
    """A card of the folder for this model that keeps its contract, except that it may be seeded.

    Of several it is the one with the smallest sets on the test records.
    """
    found = []
    for path in sorted(folder.glob("*.card.json")):
        card = read_card(path)
        kept = not set(card.formal["failed"]) - {RANDOMNESS}
        if kept and card.formal["released"]["model"] == model.hex():
            found.append((card.diagnostic.get("mean_size", math.inf), path))
    return min(found)[1] if found else None


def sample_predictions(
    folder: Path,
    results: NDArray[Any],
    truth: NDArray[Any],
    *,
    model: bytes,
    names: Sequence[str] | None,
) -> str:
    """Predict these records with a card of the folder; returns what is printed about it.

    `names` are those of the labels; None writes their numbers.
    """
    path = usable_card(folder, model)
    if path is None:
        return "no card is for this model and keeps its contract, so nothing is predicted"
    with warnings.catch_warnings():
        # They stand in what is printed.
        warnings.simplefilter("ignore", CardWarning)
        predictor = Predictor.from_card(path, key=SIMULATION_PUBLIC, simulation=True)
    task = predictor.score.task
    if not (task.of_labels or task.of_numbers):
        return f"the value of your own parameter is {predictor.threshold:.6g}, by {path}"
    lines = [f"predicted with {path}:"]
    lines += [f"  *** {remark} ***" for remark in (*predictor.remarks, SIGNED)]
    shown = _sets(predictor, results, truth, names=names) if predictor.of_labels else None
    for i, line in enumerate(shown or _intervals(predictor, results, truth)):
        lines.append(f"  record {i + 1}: {line}")
    return "\n".join(lines)


def _sets(
    predictor: Predictor, results: Any, truth: Any, *, names: Sequence[str] | None
) -> Iterator[str]:
    for chosen, label in zip(predictor.predict_labels(results), truth.tolist(), strict=True):
        inside = " ".join(_name(one, names) for one in chosen) or "(none)"
        if isinstance(label, list):
            true = [i for i, is_true in enumerate(label) if is_true]
            held = sum(i in chosen for i in true)
            yield f"{{ {inside} }}; it holds {held} of {len(true)} true labels"
            continue
        hit = "in the set" if label in chosen else "NOT in the set"
        yield f"{{ {inside} }}; it is {_name(label, names)}, {hit}"


def _intervals(predictor: Predictor, results: Any, truth: Any) -> Iterator[str]:
    for (low, high), target in zip(
        predictor.predict_interval(results).tolist(), truth.tolist(), strict=True
    ):
        hit = "inside" if low <= target <= high else "NOT inside"
        yield f"{low:.6g} to {high:.6g}; it is {target:.6g}, {hit}"


def _name(label: int, names: Sequence[str] | None) -> str:
    return str(label) if names is None else names[label]
