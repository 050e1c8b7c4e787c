from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from confide.protocol.architectures.base import scaled
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import CLIP_UNITS, sensitivity
from confide.protocol.methods.training.terms import TrainingTerms
from tests.support.networks.stacks import (
    first_weights,
    layered,
    predict,
    split,
    stack_at,
    stack_terms,
)

TERMS = stack_terms(9, 8, 5, rounds=4, centre=0.3)
STRANGE = (np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0, 1.0, 0.3, 5e-324, -0.0)


@pytest.mark.parametrize("centre", [0.0, 0.3, 0.5, 1.0, 1 / 3, np.nextafter(0.5, 1)])
def test_features_stay_within_one_and_the_centre_is_nothing(centre: float) -> None:
    """Bounds map to at most 1 in magnitude, one of them to exactly 1, order is kept, and whatever
    is no number is the centre; a centre of 0 leaves features as they are."""
    found = scaled(np.array([[*STRANGE, centre]]), centre)[0]
    assert np.abs(found).max() == 1.0
    assert found[0] == found[-1] == 0.0
    steps = scaled(np.linspace(-0.5, 1.5, 101), centre)
    assert (np.diff(steps) >= 0).all()
    inside = np.random.default_rng(0).random((5, 9))
    if centre == 0:
        assert np.array_equal(scaled(inside, centre), inside)


def test_a_centred_network_is_the_one_that_prediction_reads() -> None:
    """On ordinary records the exact sums are the clipped gradients of the network on centred
    features, from plain double precision."""
    features, labels = np.random.default_rng(1).random((40, 9)), np.arange(40) % 5
    weights = first_weights(TERMS)
    (first, bias), (second, last_bias) = split(TERMS, weights.astype(np.float64))
    total = np.zeros(TERMS.size)
    for x, label in zip((features - 0.3) / 0.7, labels, strict=True):
        hidden = np.maximum(first @ x + bias, 0)
        logits = second @ hidden + last_bias
        signal = np.exp(logits) / np.exp(logits).sum()
        shown = predict(TERMS, weights, x[None] * 0.7 + 0.3)[0]
        assert np.allclose(shown, signal, atol=1e-12)
        signal[label] -= 1
        back = (signal @ second) * (hidden > 0)
        gradient = np.concatenate(
            [np.outer(back, x).ravel(), back, np.outer(signal, hidden).ravel(), signal]
        )
        total += gradient * CLIP_UNITS / max(1.0, float(np.linalg.norm(gradient)))
    ours = stack_at(TERMS, weights).clipped_sum(features, labels)
    assert np.linalg.norm(ours - total) < 1e-3 * np.linalg.norm(total)


def test_a_centred_record_is_its_own_to_the_last_bit() -> None:
    """With strange features and hostile weights too, a record's inputs, signals and factor do not
    depend on its company, and it moves the sums by no more than the sensitivity."""
    rng = np.random.default_rng(2)
    features = np.where(
        rng.random((50, 9)) < 0.2, rng.choice(STRANGE, (50, 9)), rng.random((50, 9))
    )
    labels = rng.integers(-1, 6, 50)
    for weights in (first_weights(TERMS), rng.choice([-32.0, 32.0], TERMS.size)):
        stack = stack_at(TERMS, weights)
        together = stack.traces(features, labels)
        for i in range(50):
            alone = stack.traces(features[i : i + 1], labels[i : i + 1])
            for ours, theirs in zip(
                alone.inputs + alone.signals, together.inputs + together.signals, strict=True
            ):
                assert ours[0].tobytes() == theirs[i].tobytes()
            assert alone.factors(1.0)[0] == together.factors(1.0)[i]
        whole = stack.clipped_sum(features, labels)
        for i in range(10):
            rest = stack.clipped_sum(np.delete(features, i, axis=0), np.delete(labels, i))
            assert np.linalg.norm((whole - rest).astype(np.float64)) <= sensitivity(TERMS.size)


def test_a_centre_shortens_what_all_records_have_in_common() -> None:
    """For features around 1/2, more of a clipped gradient tells records apart when 1/2 is the
    centre."""
    rng = np.random.default_rng(3)
    features, labels = np.clip(rng.normal(0.5, 0.15, (400, 9)), 0, 1), np.arange(400) % 5
    apart = {}
    for centre in (0.0, 0.5):
        stack = stack_at(replace(TERMS, **layered(9, 5), centre=centre), np.zeros(50))
        own = np.array(
            [stack.clipped_sum(features[i : i + 1], labels[i : i + 1]) for i in range(400)]
        )
        same = labels == 0
        apart[centre] = float(np.linalg.norm(own[same] - own[same].mean(axis=0), axis=1).mean())
    assert apart[0.5] > 1.5 * apart[0.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"centre": -0.1},
        {"centre": 1.5},
        {"centre": float("nan")},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"momentum": float("nan")},
        {"averaged_rounds": 0},
        {"averaged_rounds": 5},
    ],
)
def test_numbers_beyond_their_limits_are_refused(changes: dict[str, Any]) -> None:
    """With what was found and what is accepted."""
    with pytest.raises(BadInput, match="accepted"):
        replace(TERMS, **changes)


def test_new_terms_travel() -> None:
    """Centre, momentum and averaged rounds survive the wire, and the plan's text says that missed
    rounds save nothing."""
    terms = replace(TERMS, momentum=0.7, averaged_rounds=3)
    assert TrainingTerms.from_bytes(terms.to_bytes()) == terms
    assert "all rounds, whether you answer" in terms.explain(labels=5, alpha=0.1).caveats[0]
