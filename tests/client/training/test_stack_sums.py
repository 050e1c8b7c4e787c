"""Clipped sums of the exact stack: sensitivity, rounding once, memory."""

import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from confide.client.training.layers import Stack
from confide.client.training.networks import open_sums
from confide.protocol.exact.lattice import (
    CHUNK_BYTES,
    CLIP_UNITS,
    LEAST_CHUNK,
    MOST_BATCH,
    MOST_CHUNK,
    chunk_rows,
    sensitivity,
)
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.training.terms import TrainingTerms
from tests.support.networks.exact_stack import SMALL, TERMS, Array, hostile, people
from tests.support.networks.stacks import first_weights, layered, stack_at
from tests.support.truth.lattice import length


@pytest.mark.parametrize("clip", [1e-6, 0.03, 1.0, 1e6])
@pytest.mark.parametrize("kind", list(hostile(SMALL, np.ones(5))))
def test_one_record_moves_the_sums_by_no_more_than_the_sensitivity(kind: str, clip: float) -> None:
    """Left out: at most `sensitivity`; replaced: at most twice that; alone: a clipping length and
    its own rounding."""
    terms = replace(SMALL, clip=clip)
    features, labels = people(60, 5, 3, seed=1)
    stack = stack_at(terms, hostile(terms, np.full(5, 0.7))[kind])
    whole = stack.clipped_sum(features, labels)
    most = sensitivity(terms.size)
    for i in range(60):
        without = np.delete(np.arange(60), i)
        assert length(whole - stack.clipped_sum(features[without], labels[without])) <= most
        replaced = np.where(np.arange(60) == i, (i + 1) % 60, np.arange(60))
        assert length(whole - stack.clipped_sum(features[replaced], labels[replaced])) <= 2 * most
        alone = stack.clipped_sum(features[i : i + 1], labels[i : i + 1])
        assert length(alone) <= CLIP_UNITS + math.isqrt(terms.size) // 2 + 1


def careless(stack: Stack, terms: TrainingTerms, features: Array, labels: Array) -> Array:
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
    stack = stack_at(terms, first_weights(terms))
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
    stack = stack_at(SMALL, first_weights(SMALL))
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
    terms = replace(TERMS, **layered(4, 32_000, 3))
    stack = stack_at(terms, first_weights(terms))
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
    stack = stack_at(SMALL, first_weights(SMALL))
    features = np.random.default_rng(0).random((4, 5))
    assert not stack.clipped_sum(features, np.array([-1, 3, 1 << 40, -(1 << 40)])).any()
    assert not stack.clipped_sum(features[:0], np.zeros(0, dtype=np.int64)).any()
    nothing, zero = np.full((1, 5), np.nan), np.zeros((1, 5))
    assert np.array_equal(
        stack.clipped_sum(nothing, np.array([1])), stack.clipped_sum(zero, np.array([1]))
    )
    assert stack.clipped_sum(zero, np.array([1])).any()


def test_memory_that_is_kept_between_steps_holds_nothing_of_the_last() -> None:
    """Steps at other weights and with other records, none among them, have the sums that they have
    in memory of their own."""
    sums = open_sums(SMALL.network(), clip=SMALL.clip, centre=0.0, batch=20.0)
    features, labels = people(60, 5, 3, seed=1)
    rng = np.random.default_rng(2)
    taken = []
    for rows in (slice(40), slice(0), slice(30, 60), slice(0)):
        weights = rng.normal(size=SMALL.size)
        found = sums(weights, (features[rows], labels[rows]), os_entropy)
        fresh = stack_at(SMALL, weights).clipped_sum(features[rows], labels[rows])
        assert np.array_equal(found, fresh)
        taken.append((found, fresh))
    assert all(np.array_equal(found, fresh) for found, fresh in taken)
    assert [bool(found.any()) for found, _ in taken] == [True, False, True, False]
