"""Plots draw what the metrics say."""

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.lines import Line2D

import confide
from confide.protocol.certificate import LocalCertificate
from confide.protocol.errors import BadInput
from confide.protocol.simulated.embedded import predictions

mpl.use("Agg")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    from matplotlib import pyplot as plt

    yield
    plt.close("all")


def heights(line: Line2D) -> list[float]:
    found: list[float] = np.asarray(line.get_ydata(), dtype=np.float64).tolist()
    return found


def test_sets_are_drawn_by_size_class_and_owner() -> None:
    """Bars have the heights of the counts and shares."""
    probs, labels = predictions()
    sets = confide.Predictor(confide.find_score("hps"), 0.98).predict_set(probs)
    drawn = confide.plots.set_sizes(sets, labels)
    counts = [bar.get_height() for bar in drawn.containers[0]]
    assert counts == np.bincount(sets.sum(axis=1), minlength=27).tolist()
    assert "mean size" in drawn.get_title()
    bars = confide.plots.by_class(sets, labels, alpha=0.1).containers[0]
    assert [bar.get_height() for bar in bars] == pytest.approx(
        confide.metrics.class_coverage(sets, labels)
    )
    owners = np.arange(len(labels)) % 3
    assert len(confide.plots.by_owner(sets, labels, owners, alpha=0.1).containers[0]) == 3


def test_the_cost_of_privacy_is_drawn() -> None:
    """A line a method, and a dashed one without privacy."""
    probs, labels = predictions()
    found = confide.compare(
        probs[:3000], labels[:3000], methods=["bits"], epsilons=[1.0, 4.0], trials=1, seed=1
    )
    left, right = confide.plots.against_epsilon(found)
    assert [line.get_label() for line in right.lines] == ["non-private", "bits"]
    assert heights(left.lines[1]) == pytest.approx([one.coverage for one in found[1:]])
    with pytest.raises(BadInput, match="no evaluations"):
        confide.plots.against_epsilon([])


def test_the_trail_of_a_search_ends_at_its_threshold() -> None:
    """Every threshold that was tried is drawn; a release of counts tried none."""
    probs, labels = predictions()
    made = confide.calibrate(probs[:4000], labels[:4000], epsilon=4.0, seed=1)
    drawn = confide.plots.trail(made)
    rungs = LocalCertificate.of(made.certificate).rungs
    assert heights(drawn.lines[0]) == [rung.threshold for rung in rungs]
    assert heights(drawn.lines[-1])[0] == made.threshold
    with pytest.raises(BadInput, match="tried no thresholds"):
        confide.plots.trail(confide.calibrate(probs, labels, method="central", seed=1))


@pytest.mark.parametrize("method", ["bits:per-group", "labels:for-every-group", "pairs"])
def test_each_part_has_a_trail_of_its_own(method: str) -> None:
    """A line for each that was tested, and the threshold that covers all; with parts that are all
    too small there is none, which the message does not blame on the method."""
    probs, labels = predictions()
    labels, probs = labels[:6000] % 2, np.stack([probs[:6000, ::2], probs[:6000, 1::2]]).sum(2).T
    groups: dict[str, Any] = {} if method == "pairs" else {"groups": np.arange(6000) % 3}
    made = confide.calibrate(probs, labels, method=method, epsilon=8.0, seed=1, **groups)
    drawn = confide.plots.trail(made)
    searches = [one.rungs for one in LocalCertificate.of(made.certificate).strata]
    assert len(searches) == (2 if method == "pairs" else 3)
    for line, rungs in zip(drawn.lines, searches, strict=False):
        assert heights(line) == [rung.threshold for rung in rungs]
    assert heights(drawn.lines[-1])[0] == made.threshold
    if groups:
        few = confide.calibrate(
            probs, labels, method=method, epsilon=8.0, seed=1, group_floor=5000, **groups
        )
        with pytest.raises(BadInput, match="or pairs that tested one"):
            confide.plots.trail(few)


def test_groups_are_drawn_with_the_coverage_of_each() -> None:
    """A bar a group, as high as its coverage, and a line at what was promised."""
    sets, labels = np.array([[True, False]] * 4 + [[True, True]] * 4), np.array([0, 1] * 4)
    drawn = confide.plots.by_group(sets, labels, ["a"] * 4 + ["b"] * 4, alpha=0.2)
    assert [bar.get_height() for bar in drawn.containers[0]] == [0.5, 1.0]
    assert [text.get_text() for text in drawn.get_xticklabels()] == ["a", "b"]
    assert heights(drawn.lines[0])[0] == pytest.approx(0.8)
    assert drawn.get_xlabel() == "group"


def test_intervals_are_drawn() -> None:
    """Covered and missed targets are told apart; whole lines cannot be drawn."""
    drawn = confide.plots.intervals([[0.0, 1.0], [2.0, 3.0]], [0.5, 9.0])
    assert [len(heights(line)) for line in drawn.lines] == [1, 1]
    with pytest.raises(BadInput, match="whole line"):
        confide.plots.intervals([[-np.inf, np.inf]])


def test_a_band_is_drawn_as_steps_that_rise() -> None:
    """A step a level, at its threshold and its coverage; without a band nothing is drawn."""
    probs, labels = predictions()
    made = confide.calibrate(probs, labels, method="labels", epsilon=4.0, seed=1, guarantee="band")
    (line, _) = confide.plots.band(made).get_lines()
    assert len(heights(line)) == len(made.certificate.band)
    assert heights(line) == sorted(heights(line))
    assert {*heights(line)} <= {covered for covered, _ in made.certificate.band}
    with pytest.raises(BadInput, match="no band"):
        confide.plots.band(confide.calibrate(probs, labels, epsilon=4.0, seed=1))
