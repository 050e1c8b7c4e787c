from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from confide.aggregator.procedures.labels.betting import block_ends
from confide.aggregator.procedures.labels.payoffs import (
    RungTable,
    SetValues,
    coverage_payoffs,
    x_range,
)
from confide.aggregator.procedures.ladder import Ladder, public_ladder
from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.query import LabelTally
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import all_scores
from tests.support.truth.known import label_population

K = 5
ALPHA = 0.1


def of_every(test: Any) -> Any:
    """A parameter for every label channel."""
    channels = [channel(k=K, epsilon=1.0) for channel in LABEL_CHANNELS.values()]
    return pytest.mark.parametrize("channel", channels, ids=list(LABEL_CHANNELS))(test)


def x_at(
    tally: LabelTally, channel: LabelChannel, q: float, *, largest: int, ladder: Ladder
) -> NDArray[np.float64]:
    """X of every report at a threshold, from the definition, one report at a time."""
    weights, found = channel.weights(tally.reports), []
    for scores, w in zip(tally.scores, weights, strict=True):
        inside = np.flatnonzero(scores <= q)
        few = largest or channel.k
        if few < len(inside) < channel.k - few:
            # The best labels; between two rungs the smaller index counts as better.
            rungs = np.searchsorted(ladder, scores[inside])
            inside = inside[np.argsort(rungs, kind="stable")][:few]
        outside = np.setdiff1d(np.arange(channel.k), inside)
        half = 2 * len(inside) > channel.k
        found.append(1 - w[outside].sum() if half else w[inside].sum())
    return np.array(found)


@of_every
def test_x_is_unbiased_and_within_its_range(channel: LabelChannel) -> None:
    """For every set, the mean of X over the law of the report is the indicator of the own label,
    and X stays within `x_range`."""
    low, high = x_range(channel)
    for value in range(K):
        law = channel.law(value)
        flags = channel.supports(np.array(list(law)))
        chances = np.array([float(p) for p in law.values()])
        # Labels enter the set in this order.
        order = np.array([2, 0, 4, 1, 3])
        supported = np.zeros((len(law), K + 1), dtype=np.int64)
        supported[:, 1:] = flags[:, order].cumsum(axis=1)
        x = SetValues(channel).of(np.arange(K + 1)[None, :], supported)
        inside = np.arange(K + 1) > order.tolist().index(value)
        np.testing.assert_allclose(chances @ x, inside, atol=1e-9)
        assert low - 1e-9 <= x.min()
        assert x.max() <= high + 1e-9


@of_every
@pytest.mark.parametrize(("largest", "ties"), [(0, False), (0, True), (1, False)])
def test_payoffs_are_sums_of_powers_of_x(channel: LabelChannel, largest: int, ties: bool) -> None:
    """At every rung and block the sums are those of (X - (1 - alpha)) / scale, summed afresh."""
    probs, truth = label_population(300, K, np.random.default_rng(1), ties=ties)
    scores = all_scores(SCORES["aps"], probs)
    tally = LabelTally(scores, channel.randomize(truth, SeededEntropy(1)))
    ladder = public_ladder(30)
    thresholds, payoffs = coverage_payoffs(
        tally, channel, ladder=ladder, alpha=ALPHA, largest=largest
    )
    low, high = x_range(channel, largest)
    assert payoffs.sizes.sum() == 300
    np.testing.assert_allclose(payoffs.most, (high - 0.9) / (0.9 - low))
    for j, q in enumerate(thresholds):
        d = (x_at(tally, channel, q, largest=largest, ladder=ladder) - 0.9) / (0.9 - low)
        for power in range(4):
            expected = [
                (d[first:last] ** (power + 1)).sum() for first, last in pairwise(block_ends(300))
            ]
            np.testing.assert_allclose(payoffs.sums[power, j], expected, atol=1e-9)


def test_rungs_that_change_no_set_are_left_out() -> None:
    """Of the ladder, the highest rung below 1 and those from which labels leave are tested."""
    channel = LABEL_CHANNELS["k-rr"](k=2, epsilon=1.0)
    tally = LabelTally(np.tile([0.2, 0.7], (10, 1)), np.zeros(10, dtype=np.int64))
    ladder = np.array([0.1, 0.3, 0.5, 0.6, 0.8, 0.9, 1.0])
    thresholds, _ = coverage_payoffs(tally, channel, ladder=ladder, alpha=ALPHA)
    assert thresholds == [0.9, 0.6, 0.1]


def test_a_cap_of_set_sizes_bounds_the_range_and_only_lowers_coverage() -> None:
    """With 1,000 labels a cap of 50 narrows the range of X; X then estimates the coverage of the
    50 best labels of larger sets, which is not above that of the sets."""
    channel = LABEL_CHANNELS["subset"](k=1_000, epsilon=1.0)
    wide, narrow = x_range(channel), x_range(channel, 50)
    assert narrow[1] - narrow[0] < (wide[1] - wide[0]) / 5
    values = SetValues(channel, 50)
    sizes = np.arange(1_001)[None, :]
    # The mean report: label at place 300 of the order is true.
    mean = np.full(1_000, float(channel.spill))
    mean[300] = float(channel.hit)
    supported = np.concatenate([[0.0], mean.cumsum()])[None, :]
    x = values.of(sizes, supported)
    np.testing.assert_allclose(x[0, :950], 0.0, atol=1e-9)
    np.testing.assert_allclose(x[0, 950:], 1.0, atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rungs=st.integers(4, 900), single=st.booleans())
def test_the_table_of_rungs_is_exact(seed: int, rungs: int, single: bool) -> None:
    """A score has as many rungs below it as a search finds, also at rungs, beside them, 0 and 1."""
    rng, ladder = np.random.default_rng(seed), public_ladder(rungs)
    near = [ladder, np.nextafter(ladder, 0), np.nextafter(ladder[:-1], 1), [0.0, 1.0]]
    scores = np.concatenate([*near, rng.random(500), 10.0 ** -rng.uniform(0, 18, 200)])
    scores = np.minimum(scores.astype(np.float32 if single else np.float64), 1)
    expected = np.searchsorted(ladder, scores.astype(np.float64), side="left")
    assert np.array_equal(RungTable(ladder).of(scores[:, None])[:, 0], expected)
