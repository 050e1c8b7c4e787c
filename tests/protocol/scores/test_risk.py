"""Scores of risks: coverage is one minus the expected loss, exactly."""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from confide.protocol.errors import BadInput
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.registry import check_text, find_score
from confide.protocol.scores.risk import FalseNegatives, OwnLoss
from tests.support.owners.owners import changed
from tests.support.servers.servers import plan_now

# A number of equal cells of [0, 1) that 1, ..., 6 true labels, and losses in tenths, divide.
CELLS = 60
# Their middles: no number is at the edge of a cell, where rounding is to the safe side.
MIDDLES = (np.arange(CELLS) + 0.5) / CELLS


def repeated(row: Any) -> np.ndarray[Any, Any]:
    return np.repeat(np.asarray([row]), CELLS, axis=0)


@pytest.mark.parametrize("true", list(product((0, 1), repeat=5))[::3])
def test_coverage_is_one_minus_the_share_of_missed_labels(true: tuple[int, ...]) -> None:
    """Of all uniform numbers, exactly the share 1 - l(q) gives a score of at most q."""
    chances = np.array([0.9, 0.7, 0.7, 0.2, 0.0], dtype=np.float32)
    score = FalseNegatives()
    found = score.true_scores(repeated(chances), repeated(true), u=MIDDLES)
    for q in (0.0, 0.1, 0.2, 0.31, 0.5, 0.8, 0.9, 1.0):
        loss = score.losses(chances[None], np.array([true]), q)[0]
        missed = sum(t and np.float32(1) - p > q for t, p in zip(true, chances, strict=True))
        assert loss == missed / max(sum(true), 1)
        covered = Fraction(int((found <= q).sum()), CELLS)
        assert covered == 1 - Fraction(int(missed), max(sum(true), 1))


@pytest.mark.parametrize(
    ("losses", "counted"),
    [
        ((1.0, 0.7, 0.3, 0.1), (1.0, 0.7, 0.3)),
        ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
        # One that rises counts as the largest from there on, so that the promise is kept.
        ((0.2, 0.6, 0.1, 0.1), (0.6, 0.6, 0.1)),
        ((np.nan, 0.5, -1.0, 0.1), (1.0, 1.0, 1.0)),
    ],
)
def test_coverage_is_one_minus_the_loss(
    losses: tuple[float, ...], counted: tuple[float, ...]
) -> None:
    """At every value but the last, whose threshold is 1 and promises nothing."""
    found = OwnLoss(4).owned_scores(np.empty((CELLS, 0)), repeated(losses), u=MIDDLES)
    covered = [Fraction(int((found <= q).sum()), CELLS) for q in (0.25, 0.5, 0.75)]
    assert covered == [1 - Fraction(loss).limit_denominator(10) for loss in counted]
    assert (found <= 1).all()


def test_one_true_label_makes_it_miscoverage() -> None:
    """With one true label a record the loss is 0 or 1, and the score that of hps, to the bit."""
    rng = np.random.default_rng(3)
    probs = rng.dirichlet(np.ones(7), 500).astype(np.float32)
    labels, u = rng.integers(7, size=500), rng.random(500)
    flags = np.eye(7, dtype=bool)[labels]
    plain = LabelScore.of(find_score("hps")).true_scores(probs, labels)
    assert np.array_equal(FalseNegatives().true_scores(probs, flags, u=u), plain)


def test_what_records_hold_never_fails() -> None:
    """Labels that the plan does not have are missed, and results that are no numbers say no."""
    score, u = FalseNegatives(), np.full(4, 0.6)
    results = np.array([[0.9, 0.8], [np.nan, 0.8], [0.9, 0.8], [2.0, -3.0]], dtype=np.float32)
    wide = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 0], [1, 0, 0]], dtype=bool)
    expected = np.array([0.1, 1.0, 0.0, 0.0])
    assert score.owned_scores(results, wide, u=u) == pytest.approx(expected, abs=1e-6)
    narrow = score.owned_scores(results[:1], np.ones((1, 1), dtype=bool), u=u[:1])
    assert narrow == pytest.approx([0.1], abs=1e-6)
    few = OwnLoss(4).owned_scores(np.empty((1, 0)), np.array([[0.4, 0.1]]), u=u[:1])
    assert few.tolist() == [1.0]


@pytest.mark.parametrize("text", ["false-negatives", "own-loss values=20"])
def test_the_text_names_the_score(text: str) -> None:
    check_text(text)
    assert find_score(text).text == text


@pytest.mark.parametrize("text", ["false-negatives values=2", "own-loss", "own-loss values=2.5"])
def test_other_constants_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        find_score(text)


def test_labels_that_are_sent_are_no_risks() -> None:
    """A method that asks for the label itself has no plan for a risk."""
    terms = LabelTerms(variant="certified", channel="k-rr", epsilon=1.0, delta=0.1)
    with pytest.raises(BadInput, match="accepted is bits, central or monitor"):
        changed(plan_now(labels=4), score="false-negatives", terms=terms)
