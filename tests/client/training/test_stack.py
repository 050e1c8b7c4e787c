import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.client.training.layers import Stack, Traces, value_bits
from confide.protocol.exact.lattice import (
    CHUNK_BYTES,
    CLIP_UNITS,
    LEAST_CHUNK,
    MOST_BATCH,
    MOST_CHUNK,
    chunk_rows,
    sensitivity,
)
from confide.protocol.methods.training import (
    MOST_WIDTHS,
    Terms,
    Weights,
    first_weights,
    predict,
    split,
)

Array = NDArray[Any]

TERMS = Terms(
    layers=(48, 24, 7),
    noise_multiplier=1.0,
    sampling_rate=0.5,
    rounds=1,
    local_steps=1,
    clip=1.0,
    batch=10.0,
    learning_rate=1.0,
)
SMALL = replace(TERMS, layers=(5, 4, 3))
STRANGE = (0.0, -1.0, 1e300, np.inf, -np.inf, np.nan, 5e-324, 1e-310, 2.0**-30, 1.0 - 2.0**-53)


def people(n: int, width: int, labels: int, seed: int = 0) -> tuple[Array, Array]:
    """Records of all sorts: some with features far outside their bounds, subnormal or no number,
    some with unknown labels."""
    rng = np.random.default_rng(seed)
    features = rng.random((n, width))
    odd = rng.random((n, width)) < 0.1
    features[odd] = rng.choice(STRANGE, odd.sum())
    return features, rng.integers(-2, labels + 2, n)


def cancelling(terms: Terms, record: Array, seed: int) -> Weights:
    """Weights whose first pre-activations cancel on a record, and whose others tell the last bit of
    it from 0."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 4, terms.size).astype(np.float32)
    (first, bias), *others = split(terms, weights)
    first[:, -1] = -(first[:, :-1].astype(np.float64) @ record[:-1]) / record[-1]
    bias[:] = 0
    for matrix, _ in others:
        matrix *= np.float32(1e6)
    return weights


def halfway(terms: Terms, record: Array, seed: int) -> Array:
    """Weights that put a record's first pre-activations halfway between two units of the grid, but
    for the last bit."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=terms.size)
    first, bias = next(split(terms, weights))
    unit = 2.0 ** -(value_bits(terms.layers[1]) - 5)
    seen = np.rint(record * 2.0 ** value_bits(terms.layers[0])) * 2.0 ** -value_bits(
        terms.layers[0]
    )
    bias[:] = (np.arange(len(bias)) + 0.5) * unit - first @ seen
    return weights


def hostile(terms: Terms, record: Array) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    size = terms.size
    return {
        "first": first_weights(terms),
        "cancelling": cancelling(terms, record, 1),
        "halfway": halfway(terms, record, 1),
        "largest": np.full(size, 3e38, dtype=np.float32),
        "signs": np.where(rng.random(size) < 0.5, -32, 32).astype(np.float32),
        "subnormal": np.full(size, 1e-45, dtype=np.float32),
        "zero": np.zeros(size, dtype=np.float32),
        "all sizes": (rng.normal(size=size) * 10.0 ** rng.uniform(-30, 30, size)).astype(
            np.float32
        ),
    }


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
    stack = Stack(TERMS, hostile(TERMS, features[0])[kind])
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


def plain_signals(terms: Terms, weights: Weights, features: Array, labels: Array) -> Array:
    """The last signals as float64 products give them, nothing rounded to a grid."""
    signals = predict(terms, weights, features)
    signals[np.arange(len(labels)), labels] -= 1
    return signals


def test_plain_products_would_let_the_company_decide() -> None:
    """With the same hostile weights, double precision gives a record another gradient when its
    products are added in another order, as batches of other sizes do; the exact stack gives the
    same bits."""
    terms = replace(TERMS, layers=(48, 1, 7))
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
            Stack(terms, w).traces(x, label)
            for w, x in ((weights, record), (reordered, record[:, order]))
        )
        exact += ours.signals[1].tobytes() == theirs.signals[1].tobytes()
    assert jumps > 10
    assert exact == 100


def test_products_and_squares_fit_into_doubles_at_every_width() -> None:
    """Sums of width + 1 products with weights, and of squares, are integers of at most 2^53: exact
    in any order."""
    for width in {1, 2, 3, 16, 26, 64, 511, 512, 4095, 4096, 65_535, MOST_WIDTHS - 1}:
        bits = value_bits(width)
        assert bits >= 16
        assert (width + 1) * 2 ** (bits + 20) <= 2**53
        assert (width + 1) * 2 ** (2 * bits) <= 2**53


def test_extreme_values_reach_the_bounds_and_stay_exact() -> None:
    """With every weight and feature at its bound, pre-activations and signals are the integers that
    Python computes."""
    terms = replace(TERMS, layers=(1023, 63, 2))
    rng = np.random.default_rng(0)
    weights = np.where(rng.random(terms.size) < 0.5, -40, 40).astype(np.float32)
    traces = Stack(terms, weights).traces(np.ones((2, 1023)), np.array([0, 1]))
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
    ours = Stack(TERMS, weights).clipped_sum(features, labels)
    assert np.linalg.norm(ours - total) < 1e-3 * np.linalg.norm(total)


def length(sums: Array) -> int:
    """The L2 norm of integers, rounded up, in Python's arithmetic."""
    square = sum(int(value) ** 2 for value in sums.tolist())
    return math.isqrt(square - 1) + 1 if square else 0


@pytest.mark.parametrize("clip", [1e-6, 0.03, 1.0, 1e6])
@pytest.mark.parametrize("kind", list(hostile(SMALL, np.ones(5))))
def test_one_record_moves_the_sums_by_no_more_than_the_sensitivity(kind: str, clip: float) -> None:
    """Left out: at most `sensitivity`; replaced: at most twice that; alone: a clipping length and
    its own rounding."""
    terms = replace(SMALL, clip=clip)
    features, labels = people(60, 5, 3, seed=1)
    stack = Stack(terms, hostile(terms, np.full(5, 0.7))[kind])
    whole = stack.clipped_sum(features, labels)
    most = sensitivity(terms.size)
    for i in range(60):
        without = np.delete(np.arange(60), i)
        assert length(whole - stack.clipped_sum(features[without], labels[without])) <= most
        replaced = np.where(np.arange(60) == i, (i + 1) % 60, np.arange(60))
        assert length(whole - stack.clipped_sum(features[replaced], labels[replaced])) <= 2 * most
        alone = stack.clipped_sum(features[i : i + 1], labels[i : i + 1])
        assert length(alone) <= CLIP_UNITS + math.isqrt(terms.size) // 2 + 1


def careless(stack: Stack, terms: Terms, features: Array, labels: Array) -> Array:
    """The same sums with norms in single precision and no margin."""
    traces = stack.traces(features, labels)
    shares = [
        (
            d[:, :, None] * np.concatenate([h, np.full((len(h), 1), 2.0**f)], axis=1)[:, None, :]
        ).reshape(len(h), -1)
        * 2.0 ** -(f + g)
        for h, d, f, g in traces.by_layer()
    ]
    gradients = np.concatenate(shares, axis=1)
    norms = np.sqrt(np.square(gradients.astype(np.float32)).sum(axis=1)).astype(np.float64)
    return np.rint(
        (gradients * (CLIP_UNITS / np.maximum(norms, terms.clip))[:, None]).sum(axis=0)
    ).astype(np.int64)


def test_norms_in_single_precision_would_be_seen() -> None:
    """Clipping by norms of single precision without a margin lets some record exceed a clipping
    length; ours lets none."""
    terms = replace(SMALL, clip=0.01)
    features, labels = np.random.default_rng(0).random((200, 5)), np.arange(200) % 3
    stack = Stack(terms, first_weights(terms))
    allowed = CLIP_UNITS + math.isqrt(terms.size) // 2 + 1
    ones = [(features[i : i + 1], labels[i : i + 1]) for i in range(200)]
    assert max(length(careless(stack, terms, *one)) for one in ones) > allowed
    assert (
        CLIP_UNITS * (1 - 1e-5) < max(length(stack.clipped_sum(*one)) for one in ones) <= CLIP_UNITS
    )


def share(stack: Stack, clip: float, features: Array, labels: Array) -> list[Fraction]:
    """The exact sum of the clipped gradients, before it is rounded."""
    traces = stack.traces(features, labels)
    factors = [Fraction(factor) for factor in traces.factors(clip).tolist()]
    total: list[Fraction] = []
    for h, d, f, g in traces.by_layer():
        kept = [
            [factor * int(x) / 2 ** (f + g) for x in row]
            for factor, row in zip(factors, d.tolist(), strict=True)
        ]
        rows = [[int(x) for x in row] for row in h.tolist()]
        for j in range(d.shape[1]):
            total += [
                sum((k[j] * x[i] for k, x in zip(kept, rows, strict=True)), Fraction(0))
                for i in range(h.shape[1])
            ]
        total += [sum((k[j] for k in kept), Fraction(0)) * 2**f for j in range(d.shape[1])]
    return total


def test_sums_are_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over many chunks is within 1/2 of the exact one at every weight; rounding every chunk
    would not be."""
    features, labels = people(400, 5, 3, seed=2)
    monkeypatch.setattr("confide.client.training.layers.chunk_rows", lambda _: 4)
    stack = Stack(SMALL, first_weights(SMALL))
    exact = share(stack, SMALL.clip, features, labels)

    def worst(sums: Array) -> float:
        return max(
            abs(float(int(ours) - truth)) for ours, truth in zip(sums.tolist(), exact, strict=True)
        )

    def off_by_more(count: Callable[[], Array]) -> bool:
        return worst(count()) > 0.5 + 1e-4

    assert not off_by_more(lambda: stack.clipped_sum(features, labels))
    chunks = [slice(start, start + 4) for start in range(0, 400, 4)]
    assert off_by_more(
        lambda: np.sum([stack.clipped_sum(features[part], labels[part]) for part in chunks], axis=0)
    )


def test_memory_does_not_grow_with_records_times_width() -> None:
    """A wide layer is taken with fewer records at a time: two thousand of them need no more than
    twice the bytes of a chunk."""
    terms = replace(TERMS, layers=(4, 32_000, 3))
    stack = Stack(terms, first_weights(terms))
    features, labels = np.random.default_rng(0).random((2_000, 4)), np.arange(2_000) % 3
    tracemalloc.start()
    try:
        stack.clipped_sum(features, labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * CHUNK_BYTES


def test_chunks_of_any_width_keep_the_bound_of_float64() -> None:
    """For every number of rows that a width can ask for, a sum of the largest batch loses less than
    2^12 units."""
    assert (chunk_rows(1), chunk_rows(CHUNK_BYTES)) == (MOST_CHUNK, LEAST_CHUNK)
    assert chunk_rows(CHUNK_BYTES // 1_000) == 1_000
    for rows in range(LEAST_CHUNK, MOST_CHUNK + 1):
        assert (
            Fraction((rows + 2) + -(-MOST_BATCH // rows), 2**53) * MOST_BATCH * CLIP_UNITS < 2**12
        )


def test_records_that_say_nothing_add_nothing() -> None:
    """A label without an output is a gradient of 0; an empty batch is a sum of 0; features that are
    no number count as 0."""
    stack = Stack(SMALL, first_weights(SMALL))
    features = np.random.default_rng(0).random((4, 5))
    assert not stack.clipped_sum(features, np.array([-1, 3, 1 << 40, -(1 << 40)])).any()
    assert not stack.clipped_sum(features[:0], np.zeros(0, dtype=np.int64)).any()
    nothing, zero = np.full((1, 5), np.nan), np.zeros((1, 5))
    assert np.array_equal(
        stack.clipped_sum(nothing, np.array([1])), stack.clipped_sum(zero, np.array([1]))
    )
    assert stack.clipped_sum(zero, np.array([1])).any()
