"""The sampler of discrete Gaussians is exact; planted mistakes are caught."""

import math
from fractions import Fraction
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.exact import gaussian
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.sampling import SeededEntropy, os_entropy
from tests.support.cards.mutants import mutant
from tests.support.truth.gaussian_law import (
    VARIANCES,
    assert_accepts_exactly,
    assert_cells_exact,
    assert_encloses,
    assert_law,
    assert_one_zero,
    check,
    dealt,
    exp_minus,
    first_bits,
    limit,
    places,
)


@pytest.mark.parametrize("variance", VARIANCES)
def test_draws_follow_their_law(variance: Fraction) -> None:
    """Draws are as frequent as exp(-x^2/(2 variance)) says; false-alarm probability 2e-9 each."""
    assert_law(gaussian, variance)


@pytest.mark.parametrize("variance", VARIANCES)
def test_words_are_accepted_exactly_up_to_the_limit(variance: Fraction) -> None:
    """For every proposal tried, the last word accepted is the one in which the real limit lies."""
    assert_accepts_exactly(gaussian, variance)


def test_cells_end_exactly_at_powers_of_e() -> None:
    """The geometric part is exact to the last bit too, beyond what float64 decides included."""
    assert_cells_exact(gaussian)


def test_a_tiny_uniform_is_drawn_on() -> None:
    """Sixty-four zeros are no value of W yet: the next bits tell how far out it lies."""
    edge = first_bits(exp_minus(46), 2048)
    assert edge >> (2048 - 64) == 0
    assert dealt(gaussian, Fraction(16), 0, edge + 1, 2048, 0) == [4 * 45]
    assert dealt(gaussian, Fraction(16), 0, edge, 2048, 0) == []
    assert dealt(gaussian, Fraction(16), 0, 1 << 63, 128, 0) == []


def test_zero_counts_once() -> None:
    """There is one 0, whichever sign is dealt."""
    assert_one_zero(gaussian)


@pytest.mark.parametrize(
    "variance", [Fraction(1, 3), Fraction(77, 3), Fraction(10**12 + 7, 3), Fraction(1 << 84)]
)
def test_exact_arithmetic_decides_as_floating_point_does(
    variance: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing left to float64, the same words give the same draws."""
    fast = discrete_gaussian(variance, 1000, SeededEntropy("both", str(variance)))
    monkeypatch.setattr(gaussian, "_UNSURE", 1.5)
    assert (discrete_gaussian(variance, 1000, SeededEntropy("both", str(variance))) == fast).all()


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("bound", [40, 48])
def test_float64_is_asked_only_where_it_is_right(
    variance: Fraction, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the bound of a limit a proposal is unsure, beyond it float64 is on the right side on
    its own. It still is with a bound of 2^-48, which is what the error analysis needs: so the one
    in use has a factor of 2^8 to spare."""
    monkeypatch.setattr(gaussian, "_UNSURE", 2.0**-bound)
    inside, outside = (1 << 64 - bound) * 3 // 4, (1 << 64 - bound) * 5 // 4
    for t, low, v in places(variance):
        middle = first_bits(limit(variance, low, v), 64)
        if v > 3 or not math.exp(-v - 1) + 1e-9 < middle / 2**64 < math.exp(-v) - 1e-9:
            continue
        words = np.array(
            [middle - outside, middle - inside, middle + inside, middle + outside], dtype=np.uint64
        )
        magnitude, kept, unsure = gaussian._compare(
            gaussian._Proposals.of(variance), np.full(4, low), words
        )
        assert magnitude.tolist() == [low + t * v] * 4
        assert kept[[0, 3]].tolist() == [True, False]
        assert unsure.tolist() == [1, 2]


def test_enclosures_hold() -> None:
    """What decides the unsure proposals encloses the true exponentials."""
    assert_encloses(gaussian)
    assert gaussian._exp_minus(Fraction(0), 41) == (Fraction(1), Fraction(1))


def test_the_exponential_of_float64_is_as_good_as_claimed() -> None:
    """numpy's exp is within 8 units in the last place on 20,000 numbers of the range in which it
    decides."""
    x = -np.concatenate([np.linspace(0, 60, 10_000), np.geomspace(1e-16, 60, 10_000)])
    found = np.exp(x)
    with mpmath.workdps(40):
        true = [mpmath.exp(mpmath.mpf(float(value))) for value in x]
        worst = max(
            abs(mpmath.mpf(float(value)) / exact - 1)
            for value, exact in zip(found, true, strict=True)
        )
    assert worst <= 8 * 2.0**-53


def test_seeds_repeat_and_any_number_can_be_drawn() -> None:
    """The same seed gives the same draws; none, one and more than a chunk of them come as asked
    for."""
    for count in (0, 1, 5, 50_000):
        first, second = (
            discrete_gaussian(Fraction(90), count, SeededEntropy(count)) for _ in range(2)
        )
        assert first.shape == (count,)
        assert (first == second).all()


def test_variances_near_zero_draw_zeros() -> None:
    """A variance that float64 cannot hold gives no error: everything but 0 has probability 0 for
    all that can be seen."""
    assert not discrete_gaussian(Fraction(1, 10**400), 1000, os_entropy).any()


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction((1 << 84) + 1)])
def test_variances_out_of_range_are_refused(variance: Fraction) -> None:
    """The value found is named, and what is accepted."""
    with pytest.raises(BadInput, match=f"variance is {variance}; it must be above 0 and at most 2"):
        discrete_gaussian(variance, 1, os_entropy)


def test_the_sampler_passes_what_mutants_must_fail() -> None:
    """An unchanged copy of the source passes."""
    check(mutant(gaussian, "_CHUNK = 1 << 14", "_CHUNK = 1 << 13"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("distance < _UNSURE", "distance < 0", id="floating point decides everything"),
        pytest.param("_UNSURE = 2.0**-40", "_UNSURE = 2.0**-60", id="a bound below the error"),
        pytest.param(
            "np.minimum(above - w, w - below)", "(above - below)", id="a guess of v is believed"
        ),
        pytest.param(
            "exp(Decimal(-k))", "exp(Decimal(-k) + Decimal('1e-10'))", id="powers of e off by 1e-10"
        ),
        pytest.param(
            "float(min(1 / (2 * variance)",
            "float(min(1 / (2 * variance * (1 + 2**-30))",
            id="variance off",
        ),
        pytest.param(" - v + proposals.constant", " - v", id="a constant that lets e^-g exceed 1"),
        pytest.param("kept &= (magnitude != 0) | (sign == 0)", "", id="zero counted twice"),
        pytest.param(
            "proposals, first & ((1 << proposals.j) - 1)",
            "proposals, np.abs(first) % max((1 << proposals.j) - 1, 1)",
            id="u by the remainder of a wrong modulus",
        ),
        pytest.param("sign = first >> 63", "sign = -(first & 1)", id="a sign that depends on u"),
        pytest.param(
            "if most <= limit[0]", "if least <= limit[0]", id="the word's lower end decides"
        ),
        pytest.param(
            "if least >= limit[1]", "if most >= limit[1]", id="the word's upper end decides"
        ),
        pytest.param(
            "below[1] <= least and most <= above[0]",
            "True",
            id="a cell is believed before it is known",
        ),
        pytest.param(
            "Fraction(down.next_minus(least))", "Fraction(most)", id="an enclosure that is none"
        ),
        pytest.param(
            "most = down.exp(down.divide(Decimal(x.numerator), "
            "Decimal(x.denominator)).copy_negate())",
            "most = down.exp(-down.divide(Decimal(x.numerator), Decimal(x.denominator)))",
            id="28 digits by accident",
        ),
        pytest.param(
            "- v + self.variance / (2 << 2 * self.j)", "- v", id="an exact g that is another"
        ),
    ],
)
def test_planted_mistakes_are_caught(old: str, new: str) -> None:
    """Every change of the sampler that changes its law, or lets rounding decide, fails a check of
    this file."""
    with pytest.raises(AssertionError):
        check(mutant(gaussian, old, new))


def test_rounding_a_continuous_gaussian_is_caught() -> None:
    """Rounded normal draws are not the discrete law."""

    def rounded(variance: Fraction, count: int, entropy: Any) -> NDArray[np.int64]:
        return np.rint(np.random.default_rng(0).normal(0, math.sqrt(variance), count)).astype(
            np.int64
        )

    module = ModuleType("rounded")
    module.discrete_gaussian = rounded  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        assert_law(module, Fraction(3, 10))
