"""Metrics have the values that a hand computes."""

import math

import numpy as np
import pytest
import torch

from confide import metrics
from confide.protocol.errors import BadInput

SETS = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 1, 1]], dtype=bool)
LABELS = np.array([0, 2, 1, 0])
INTERVALS = np.array([[0.0, 2.0], [3.0, 1.0], [-1.0, 1.0]])


def test_sets_are_measured() -> None:
    """Three of four labels are covered, with seven labels in all."""
    assert metrics.coverage(SETS, LABELS) == 0.75
    assert metrics.mean_size(SETS) == 1.75
    assert metrics.class_coverage(SETS, LABELS).tolist() == [1.0, 1.0, 0.0]
    assert metrics.covgap(SETS, LABELS, alpha=0.1) == pytest.approx((0.1 + 0.1 + 0.9) / 3)


def test_a_class_without_records_does_not_count() -> None:
    """Its coverage is NaN, and the gap is that of the others."""
    found = metrics.class_coverage(SETS[:1], LABELS[:1])
    assert found[0] == 1
    assert np.isnan(found[1:]).all()
    assert metrics.covgap(SETS[:1], LABELS[:1], alpha=0.1) == pytest.approx(0.1)


def test_strata_hold_every_record_once() -> None:
    """Sizes 1, 2 and 3 fall into the strata of the edges; empty strata are left out."""
    found = metrics.size_stratified_coverage(SETS, LABELS, edges=(1, 2))
    assert found == [(0, 1, 2, 1.0), (2, 2, 1, 0.0), (3, 3, 1, 1.0)]
    assert sum(one.records for one in metrics.size_stratified_coverage(SETS, LABELS)) == 4
    with pytest.raises(BadInput, match="edges are"):
        metrics.size_stratified_coverage(SETS, LABELS, edges=(2, 1))


def test_intervals_are_measured() -> None:
    """The second interval is empty: it has width 0 and covers nothing."""
    assert metrics.coverage(INTERVALS, np.array([2.0, 2.0, 1.5])) == pytest.approx(1 / 3)
    assert metrics.mean_width(INTERVALS) == pytest.approx(4 / 3)
    assert metrics.mean_width([[-math.inf, math.inf]]) == math.inf


def test_groups_have_their_own_coverage() -> None:
    """Sets and intervals, groups by any name."""
    assert metrics.group_coverage(SETS, LABELS, ["a", "b", "b", "a"]) == {"a": 1.0, "b": 0.5}
    assert metrics.group_coverage(INTERVALS, [1.0, 1.0, 9.0], [1, 2, 2]) == {1: 1.0, 2: 0.0}


def test_tensors_are_arrays() -> None:
    """Torch gives what numpy gives."""
    assert metrics.coverage(torch.from_numpy(SETS), torch.from_numpy(LABELS)) == 0.75


def test_what_is_neither_sets_nor_intervals_is_refused() -> None:
    """With the shape that was found."""
    with pytest.raises(BadInput, match="sets have shape"):
        metrics.mean_size(SETS.astype(float))
    with pytest.raises(BadInput, match="intervals have shape"):
        metrics.coverage(np.zeros((2, 3)), [0, 0])
    with pytest.raises(BadInput, match="truth has shape"):
        metrics.coverage(INTERVALS, [0.0])
    with pytest.raises(BadInput, match="groups have shape"):
        metrics.group_coverage(SETS, LABELS, [1])
