"""The law of shuffled pairs (threshold, bit), enumerated in rationals, against the bound.

At e^epsilon = 3 a bit is kept with probability 3/4, so that every probability is a fraction.
"""

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, product

import pytest

from confide.protocol.privacy.amplification import shuffled_delta

KEEP, HALF = Fraction(3, 4), Fraction(1, 2)
# Whether the score of a record is at or below either of two thresholds.
RECORDS = ((0, 0), (0, 1), (1, 1))
LEVELS = (Fraction(11, 10), Fraction(3, 2), Fraction(2), Fraction(5, 2))
Law = Counter[tuple[int, ...]]


def pair(record: tuple[int, ...]) -> Law:
    """What one record sends, as a count of each of the four pairs; the threshold is drawn."""
    law: Law = Counter()
    for j, bit in product(range(2), range(2)):
        sent = tuple(int((j, bit) == other) for other in product(range(2), range(2)))
        law[sent] += HALF * (KEEP if bit == record[j] else 1 - KEEP)  # type: ignore[assignment]
    return law


def mixed(records: Iterator[tuple[int, ...]] | tuple[tuple[int, ...], ...]) -> Law:
    """What these records send together, without who sent what."""
    law: Law = Counter({(0, 0, 0, 0): Fraction(1)})
    for record in records:
        more: Law = Counter()
        for (one, p), (other, q) in product(law.items(), pair(record).items()):
            more[tuple(a + b for a, b in zip(one, other, strict=True))] += p * q
        law = more
    return law


def excess(one: Law, other: Law, level: Fraction) -> Fraction:
    """The hockey-stick divergence at this level of e^epsilon."""
    found = (p - level * other[what] for what, p in one.items())
    return sum((gap for gap in found if gap > 0), Fraction(0))


def worst(n: int, level: Fraction) -> Fraction:
    """The largest divergence when one of n records changes, whatever the others are."""
    return max(
        excess(mixed((one, *others)), mixed((other, *others)), level)
        for others in combinations_with_replacement(RECORDS, n - 1)
        for one, other in product(RECORDS, RECORDS)
        if one != other
    )


def bound(n: int, level: Fraction) -> Fraction:
    """The divergence of the pair that `shuffled_delta` speaks of: C ~ Bin(n - 1, 1/2) here."""
    laws: tuple[Law, Law] = Counter(), Counter()
    for c in range(n):
        for a in range(c + 1):
            mass = Fraction(math.comb(n - 1, c), 2 ** (n - 1)) * Fraction(math.comb(c, a), 2**c)
            for d, p in ((1, KEEP), (0, 1 - KEEP)):
                laws[0][a + d, c - a + 1 - d] += mass * p  # type: ignore[assignment]
                laws[1][a + 1 - d, c - a + d] += mass * p  # type: ignore[assignment]
    return excess(*laws, level)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_bound_of_the_whole_round_holds_for_pairs(n: int) -> None:
    """Records answer different thresholds, and the crowd is all of them: the exact law of what an
    aggregator gets is never above the bound, nor the bound above the number that cards rest on."""
    for level in LEVELS:
        exact = bound(n, level)
        stated = shuffled_delta(epsilon=math.log(level), local_epsilon=math.log(3), n=n, cut=1e-12)
        assert worst(n, level) <= exact
        assert float(exact) <= stated


def test_a_larger_crowd_than_there_was_is_no_bound() -> None:
    """With n = 5 claimed for 2 reports, or for one whose sender is known, the law is above it."""
    for level in LEVELS:
        assert worst(2, level) > bound(8, level)
        assert worst(1, level) > bound(5, level)


def test_a_pair_alone_loses_the_local_epsilon() -> None:
    """Where who sent what is known, nothing is amplified: the worst ratio is e^epsilon itself."""
    ratios = {
        pair(one)[what] / pair(other)[what]
        for one, other in product(RECORDS, RECORDS)
        for what in pair(one)
    }
    assert max(ratios) == 3
