import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from confide.protocol.channels.subset_selection import uniform_subsets
from confide.protocol.exact.exponentials import exp_below, log_up
from confide.protocol.exact.sampling import (
    Entropy,
    SeededEntropy,
    bernoulli,
    os_entropy,
    randomness,
    uniform,
    words,
    words_below,
)
from tests.support.truth.known import Scripted


def every_word_once(then: int = 0) -> Scripted:
    return Scripted(range(1 << 16), 16, then=then)


def assert_exactly_uniform(draw: Callable[[int, int, Entropy], Any], m: int) -> None:
    """Deal every 16-bit word once: each value must come up equally often, words drawn again (as m -
    1) aside."""
    counts = np.bincount(draw(m, 1 << 16, every_word_once(then=m - 1)), minlength=m)
    counts[m - 1] -= (1 << 16) % m
    assert (counts == (1 << 16) // m).all()


@pytest.mark.parametrize("m", [1, 2, 3, 7, 10, 26, 1000, 4095, 4096])
def test_uniform_choice_is_exactly_uniform(m: int) -> None:
    """Over all 65,536 words every value is chosen equally often."""
    assert_exactly_uniform(uniform, m)


def test_a_planted_modulo_bias_is_caught() -> None:
    """Taking the remainder without rejection favours the small values, and the exact check sees
    it."""

    def modulo(m: int, count: int, entropy: Entropy) -> Any:
        return words(count, 16, entropy) % m

    with pytest.raises(AssertionError):
        assert_exactly_uniform(modulo, 7)


@pytest.mark.parametrize(
    ("m", "bits"), [(4097, 32), (1 << 28, 32), ((1 << 28) + 1, 64), (1 << 62, 64)]
)
def test_wide_uniform_choice_rejects_from_the_exact_limit_on(m: int, bits: int) -> None:
    """The last accepted word stands for m - 1; the first word past the limit is drawn again."""
    limit = (1 << bits) // m * m
    tried = [limit - 1] + ([limit] if limit < 1 << bits else [])
    assert uniform(m, len(tried), Scripted(tried, bits)).tolist() == [m - 1, 0][: len(tried)]


def test_bernoulli_is_exact() -> None:
    """Over all 16-bit words a numerator of 12,345 is true exactly 12,345 times; 0 never, 2^16
    always."""
    for numerator in (0, 1, 12_345, (1 << 16) - 1, 1 << 16):
        assert bernoulli(numerator, 1 << 16, every_word_once(), bits=16).sum() == numerator


def test_words_below_draws_again_until_below() -> None:
    """A word at the limit is replaced, and again if need be."""
    assert words_below(10, 2, Scripted([10, 3, 12, 9], 16), bits=16).tolist() == [9, 3]


@pytest.mark.parametrize(("items", "size"), [(4, 2), (5, 3), (6, 1), (3, 3), (5, 0)])
def test_subsets_are_exactly_uniform(items: int, size: int) -> None:
    """Over every combination of draws each subset comes up equally often."""
    draws = list(itertools.product(*(range(last + 1) for last in range(items - size, items))))
    flags = uniform_subsets(
        len(draws),
        Scripted(np.array(draws, dtype=np.int64).T.reshape(-1).tolist(), 16),
        items=items,
        size=size,
    )
    _, counts = np.unique(flags, axis=0, return_counts=True)
    assert (flags.sum(axis=1) == size).all()
    assert counts.tolist() == [len(draws) // math.comb(items, size)] * math.comb(items, size)


def test_seeded_entropy_repeats_and_is_stamped() -> None:
    """The same seed gives the same stream, another seed another; only the operating system's source
    is unstamped."""
    assert SeededEntropy(7)(64) == SeededEntropy(7)(64)
    assert SeededEntropy(7)(64) != SeededEntropy(8)(64)
    assert randomness(os_entropy) == "operating system"
    assert randomness(SeededEntropy(7)) == "seeded (simulation only)"


def test_exponentials_and_logarithms_enclose() -> None:
    """exp_below is at most e^x and within 1e-50 of it, and log is the smallest float above the true
    value."""
    for x in (1e-6, 0.1, 1.0, 4.0, 40.0):
        assert log_up(exp_below(x)) <= x
        assert math.isclose(log_up(exp_below(x)), x, rel_tol=1e-12)
        assert log_up(exp_below(x) * (1 + Fraction(1, 10**50))) > x
    assert log_up(Fraction(1)) == 0.0
