"""The law of the discrete Gaussian in many digits, and checks of a sampler against it."""

import math
from collections.abc import Iterator
from fractions import Fraction
from types import ModuleType

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from confide.protocol.exact import gaussian
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.truth.known import Scripted, assert_follows

ONES = (1 << 64) - 1
DRAWS = 400_000
# Of the truth that rational decisions are compared with.
DIGITS = 700
# Small, rational, not near a power of two, and as large as training on the lattice has them.
VARIANCES = [
    Fraction(3, 10),
    Fraction(1),
    Fraction(10),
    Fraction(77, 3),
    Fraction(10**12 + 7, 3),
    Fraction(1 << 64),
    Fraction(1 << 84),
]


def small_law(variance: Fraction) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The integers that come up at least 20 times in DRAWS, and their probabilities."""
    x = np.arange(-60, 61)
    mass = np.exp(-(x**2) / (2 * float(variance)))
    mass /= mass.sum()
    return x[mass * DRAWS >= 20], mass[mass * DRAWS >= 20]


def assert_law(module: ModuleType, variance: Fraction) -> None:
    """Chi-square tests, one value a cell for small variances, normal quantiles and the lowest bits
    for large ones.

    A correct sampler fails with probability at most 2e-9. Beyond 2^32 a discrete Gaussian's
    quantiles are the continuous ones and its lowest bits uniform to within 1e-9.
    """
    draws = module.discrete_gaussian(variance, DRAWS, SeededEntropy("law", str(variance)))
    assert draws.dtype == np.int64
    assert draws.shape == (DRAWS,)
    if variance < 100:
        values, mass = small_law(variance)
        counts = np.array([(draws == x).sum() for x in values])
        assert_follows(
            np.append(counts, DRAWS - counts.sum() + 20),
            np.append(mass, 1 - mass.sum() + 20 / DRAWS),
        )
    else:
        edges = norm.ppf(np.arange(1, 200) / 200) * math.sqrt(variance)
        assert_follows(
            np.bincount(np.searchsorted(edges, draws), minlength=200), np.full(200, 1 / 200)
        )
        assert_follows(np.bincount(draws & 63, minlength=64), np.full(64, 1 / 64))


def exp_minus(x: int) -> mpmath.mpf:
    with mpmath.workdps(DIGITS):
        return mpmath.exp(-x)


def limit(variance: Fraction, low: int, v: int) -> mpmath.mpf:
    """What W must be below for the magnitude low + t v, v given."""
    t = 2 ** max(j for j in range(44) if j == 0 or 4**j <= 2 * variance)
    with mpmath.workdps(DIGITS):
        exact = mpmath.mpf(variance.numerator) / variance.denominator
        g = (low + t * v) ** 2 / (2 * exact) - v + exact / (2 * t**2)
        return mpmath.exp(-v - 1) + (mpmath.exp(-v) - mpmath.exp(-v - 1)) * mpmath.exp(-g)


def first_bits(real: mpmath.mpf, bits: int) -> int:
    with mpmath.workdps(DIGITS):
        return int(mpmath.floor(real * 2**bits))


def places(variance: Fraction) -> Iterator[tuple[int, int, int]]:
    """Every proposal (t, low, v) with v < 4 for small variances, some for large ones, and some that
    are rare."""
    t = 2 ** gaussian._Proposals.of(variance).j
    lows = range(t) if t <= 4 else sorted({0, 1, 2, t // 3, t // 2, t - 2, t - 1})
    return ((t, low, v) for low in lows for v in (0, 1, 2, 3, 12))


def dealt(
    module: ModuleType, variance: Fraction, low: int, w: int, bits: int, more: int
) -> list[int]:
    """What one proposal with this u and these first bits of W comes to, all further bits being
    those of the word `more`."""
    parts = [w >> shift & ONES for shift in range(bits - 64, -1, -64)]
    return module._accepted(
        module._Proposals.of(variance), 1, Scripted([low, *parts], 64, then=more)
    ).tolist()


def assert_accepts_exactly(module: ModuleType, variance: Fraction) -> None:
    """Of all first words of W, those below its limit are accepted and no other; the word that holds
    the limit is decided by further bits. Likewise with more bits for proposals whose probability is
    below 2^-64. So the probability of every magnitude is the exact one."""
    for t, low, v in places(variance):
        if gaussian._Proposals.of(variance).exponent(low + t * v, v) == 0:
            continue  # Accepted always: the limit is the end of the cell.
        for bits in (64, 1024):
            first, end = first_bits(exp_minus(v + 1), bits), first_bits(exp_minus(v), bits)
            last = first_bits(limit(variance, low, v), bits)
            if first + 1 < last < end - 1:
                break
        else:
            raise AssertionError("a proposal so rare that this test needs more bits")
        for w, more, kept in (
            (last - 1, 0, True),
            (last - 1, ONES, True),
            (last, 0, True),
            (last, ONES, False),
            (last + 1, 0, False),
            (last + 1, ONES, False),
        ):
            assert dealt(module, variance, low, w, bits, more) == [low + t * v] * kept


def assert_cells_exact(module: ModuleType) -> None:
    """Words change from one v to the next exactly where e^-v lies: just above it x is low + t (v -
    1) and accepted, for there every W is below its limit; just below it W is at the top of the next
    cell and is rejected."""
    for variance in (Fraction(10), Fraction(1 << 64)):
        t = 2 ** module._Proposals.of(variance).j
        for v, bits in ((1, 64), (2, 64), (3, 64), (4, 64), (12, 512)):
            edge, above = first_bits(exp_minus(v), bits), [t - 1 + t * (v - 1)]
            for w, more, found in (
                (edge - 1, ONES, []),
                (edge, 0, []),
                (edge, ONES, above),
                (edge + 1, 0, above),
            ):
                assert dealt(module, variance, t - 1, w, bits, more) == found


def assert_one_zero(module: ModuleType) -> None:
    """A 0 with a minus sign is rejected; other magnitudes have both signs."""
    surely = first_bits(limit(Fraction(10), 1, 0), 64) - (1 << 40)
    assert dealt(module, Fraction(10), 0, surely, 64, 0) == [0]
    assert dealt(module, Fraction(10), 1 << 63, surely, 64, 0) == []
    assert dealt(module, Fraction(10), 1, surely, 64, 0) == [1]
    assert dealt(module, Fraction(10), 1 | 1 << 63, surely, 64, 0) == [-1]


def assert_encloses(module: ModuleType) -> None:
    """Rational numbers on both sides of e^-x, close to it, at any number of digits."""
    with mpmath.workdps(400):
        for x in (
            Fraction(1, 10**30),
            Fraction(1, 3),
            Fraction(27),
            Fraction(10**40 + 1, 10**39 * 7),
            Fraction(500, 3),
        ):
            true = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
            for digits in (41, 62, 105):
                low, high = (
                    mpmath.mpf(end.numerator) / end.denominator
                    for end in module._exp_minus(x, digits)
                )
                assert 0 <= low < true < high <= 1
                assert high - low <= mpmath.mpf(10) ** (3 - digits)


def check(module: ModuleType) -> None:
    """All that a sampler must pass here."""
    assert_one_zero(module)
    assert_encloses(module)
    assert_cells_exact(module)
    for variance in (Fraction(3, 10), Fraction(77, 3), Fraction(1 << 64)):
        assert_accepts_exactly(module, variance)
        assert_law(module, variance)
