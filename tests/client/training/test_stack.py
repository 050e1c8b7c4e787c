"""The exact stack: a record's gradient is the same bits in any batch, and that of the network."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from confide.client.training.layers import Traces, value_bits
from confide.protocol.architectures.base import MOST_UNITS, Weights
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.methods.training.terms import TrainingTerms
from tests.support.networks.exact_stack import TERMS, Array, cancelling, hostile, people
from tests.support.networks.stacks import first_weights, layered, predict, split, stack_at


def of_record(traces: Traces, clip: float, place: int) -> list[Array]:
    return [
        *(part[place] for part in traces.inputs + traces.signals),
        traces.factors(clip)[place : place + 1],
    ]


@pytest.mark.parametrize("kind", list(hostile(TERMS, np.ones(48))))
def test_a_records_gradient_is_its_own_to_the_last_bit(kind: str) -> None:
    """Alone, at any place in batches of any size, in any memory: inputs, signals and clipping
    factor are the same bits."""
    features, labels = people(301, 48, 7)
    features[0] = np.random.default_rng(1).random(48) * 0.9 + 0.1
    stack = stack_at(TERMS, hostile(TERMS, features[0])[kind])
    rng = np.random.default_rng(3)
    alone = {
        i: of_record(stack.traces(features[i : i + 1], labels[i : i + 1]), 1.0, 0)
        for i in range(40)
    }
    for n in (1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 100, 301):
        for shuffled in range(2):
            rows = np.concatenate([[0], rng.permutation(301)[: n - 1]])
            rng.shuffle(rows)
            taken = np.asfortranarray(features[rows]) if shuffled else features[rows]
            traces = stack.traces(taken, labels[rows])
            for place in np.flatnonzero(rows < 40).tolist():
                for ours, theirs in zip(
                    of_record(traces, 1.0, place), alone[int(rows[place])], strict=True
                ):
                    assert ours.tobytes() == theirs.tobytes()


def plain_signals(terms: TrainingTerms, weights: Weights, features: Array, labels: Array) -> Array:
    """The last signals as float64 products give them, nothing rounded to a grid."""
    signals = predict(terms, weights, features)
    signals[np.arange(len(labels)), labels] -= 1
    return signals


def test_plain_products_would_let_the_company_decide() -> None:
    """With the same hostile weights, double precision gives a record another gradient when its
    products are added in another order, as batches of other sizes do; the exact stack gives the
    same bits."""
    terms = replace(TERMS, **layered(48, 1, 7))
    order = np.random.default_rng(0).permutation(48)
    jumps, exact = 0, 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        record, label = rng.random((1, 48)) * 0.9 + 0.1, np.array([0])
        weights = cancelling(terms, record[0], seed)
        # Exactly 0 in real arithmetic, so that only rounding is left; beyond the bound of the
        # weights, for plain products.
        weights = weights.astype(np.float64)
        (first, _), (second, _) = split(terms, weights)
        first[0, -1] = -(first[0, :-1] @ record[0, :-1]) / record[0, -1]
        second *= 1e12
        reordered = weights.copy()
        next(split(terms, reordered))[0][:] = first[:, order]
        there, here = (
            plain_signals(terms, w, x, label)
            for w, x in ((weights, record), (reordered, record[:, order]))
        )
        jumps += bool(np.abs(there - here).max() > 0.1)
        ours, theirs = (
            stack_at(terms, w).traces(x, label)
            for w, x in ((weights, record), (reordered, record[:, order]))
        )
        exact += ours.signals[1].tobytes() == theirs.signals[1].tobytes()
    assert jumps > 10
    assert exact == 100


def test_products_and_squares_fit_into_doubles_at_every_width() -> None:
    """Sums of width + 1 products with weights, and of squares, are integers of at most 2^53: exact
    in any order."""
    for width in {1, 2, 3, 16, 26, 64, 511, 512, 4095, 4096, 65_535, MOST_UNITS - 1}:
        bits = value_bits(width)
        assert bits >= 16
        assert (width + 1) * 2 ** (bits + 20) <= 2**53
        assert (width + 1) * 2 ** (2 * bits) <= 2**53


def test_extreme_values_reach_the_bounds_and_stay_exact() -> None:
    """With every weight and feature at its bound, pre-activations and signals are the integers that
    Python computes."""
    terms = replace(TERMS, **layered(1023, 63, 2))
    rng = np.random.default_rng(0)
    weights = np.where(rng.random(terms.size) < 0.5, -40, 40).astype(np.float32)
    traces = stack_at(terms, weights).traces(np.ones((2, 1023)), np.array([0, 1]))
    (first, bias), (second, _) = split(terms, np.sign(weights).astype(int))
    for unit in range(63):
        total = 32 * (sum(first[unit].tolist()) + int(bias[unit]))
        assert traces.inputs[1][0, unit] == min(max(total, 0), 32) * 2 ** (value_bits(63) - 5)
        # The two classes' signals are opposite: p - 1 at the label, 1 - p at the other.
        signal = (
            Fraction(int(traces.signals[1][0, 0]), 2 ** value_bits(2))
            * 32
            * int(second[0, unit] - second[1, unit])
        )
        expected = max(min(signal, 32), -32) * 2 ** (value_bits(63) - 5) * (total > 0)
        assert abs(traces.signals[0][0, unit] - expected) <= Fraction(1, 2)


def test_the_exact_stack_is_the_network_it_stands_for() -> None:
    """On ordinary records and weights its sums are those of plain double precision, within the
    coarseness of its grids."""
    features, labels = np.random.default_rng(1).random((50, 48)), np.arange(50) % 7
    weights = first_weights(TERMS)
    (first, bias), (second, _) = split(TERMS, weights.astype(np.float64))
    total = np.zeros(TERMS.size)
    for x, label in zip(features, labels, strict=True):
        hidden = np.maximum(first @ x + bias, 0)
        last = plain_signals(TERMS, weights, x[None], np.array([label]))[0]
        back = (last @ second) * (hidden > 0)
        gradient = np.concatenate(
            [np.outer(back, x).ravel(), back, np.outer(last, hidden).ravel(), last]
        )
        total += gradient * CLIP_UNITS / max(1.0, float(np.linalg.norm(gradient)))
    ours = stack_at(TERMS, weights).clipped_sum(features, labels)
    assert np.linalg.norm(ours - total) < 1e-3 * np.linalg.norm(total)
