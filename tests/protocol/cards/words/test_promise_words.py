"""What cards promise in words: in every variant, for coverage and for every risk."""

from typing import Any

import numpy as np
import pytest

import confide
from confide.protocol.cards.words.promise_words import promise
from tests.support.cards.cards import KEY
from tests.support.truth.known import label_population
from tests.support.truth.multi_label import many_labels

N, VALUES = 4_000, 10
MANY = many_labels(N, 1)
PROBS, LABELS = label_population(N, 4, np.random.default_rng(2), ties=False)
LOSSES = np.linspace(1, 0, VALUES) * np.random.default_rng(3).random((N, 1))
RESULTS: dict[str, tuple[Any, Any]] = {
    "hps": (PROBS, LABELS),
    "false-negatives": (MANY.chances, MANY.flags),
    f"own-loss values={VALUES}": (None, LOSSES),
}
HELD = {
    "hps": "at least 80 % of new records like {like}, the predicted set holds the true label",
    "false-negatives": "the share of a record's true labels that its set misses is at most 20 %",
    f"own-loss values={VALUES}": "the loss that owners brought is at most 20 %",
}
# The last ward has 40 records, which is below the floor.
WARDS = np.repeat(["north", "south", "west"], [2_500, N - 2_540, 40])
FLOOR: dict[str, Any] = {"group_floor": 300, "groups": WARDS}
VARIANTS: dict[str, dict[str, Any]] = {
    "bits": {},
    "bits:for-every-group": FLOOR,
    "bits:per-group": FLOOR,
    "bits:for-every-owner": {"owner_floor": 300, "owners": WARDS},
    "bits:per-owner": {"owner_floor": 300, "owners": WARDS},
    "central": {},
    "central by group": {"by": "group", "groups": WARDS},
}
# What a card says of its parts before what it says of one.
PARTS = {
    "bits:for-every-group": "at every group that is covered, 2 of 3",
    "bits:per-group": "in every group",
    "bits:for-every-owner": "at every owner that is covered, 2 of 3",
    "bits:per-owner": "in every owner",
    "central by group": "in every group",
}


@pytest.mark.parametrize("score", RESULTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_card_promises_what_its_variant_claims_of_its_risk(variant: str, score: str) -> None:
    """The clause of the risk stands in the words of the variant, which name parts left out."""
    results, truth = RESULTS[score]
    found = confide.calibrate(
        results,
        truth,
        score=score,
        method=variant.partition(" ")[0],
        epsilon=4.0,
        alpha=0.2,
        seed=1,
        **VARIANTS[variant],
    )
    said = promise(found.card(KEY).formal)
    whom = PARTS.get(variant, "").partition("every ")[2].partition(" ")[0].rstrip(",")
    like = f"those of the same {whom}" if "for-every" in variant else "the calibrated ones"
    assert HELD[score].format(like=like) in said
    assert PARTS.get(variant, "") in said.lower()
    assert ("every" in said) == (variant in PARTS)
    assert ("Not covered, for too few reports" in said) == ("for-every" in variant)
    if "for-every" in variant:
        name = "3" if whom == "owner" else "west"
        assert f"{whom} {name}" in said
    assert ("on average over new records" in said.lower()) == (
        score != "hps" and variant.startswith("bits")
    )
