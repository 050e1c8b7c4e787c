import math

import numpy as np
import pytest
from scipy.stats import binom

from confide.protocol.errors import BadInput
from confide.protocol.privacy.amplification import shuffled_delta, shuffled_epsilon


def hockey_stick(epsilon: float, local: float, n: int) -> tuple[float, float]:
    """Both directions of the divergence, summed over the whole joint law of the two coordinates."""
    p = math.exp(local) / (math.exp(local) + 1)
    law: dict[str, dict[tuple[int, int], float]] = {"P": {}, "Q": {}}
    for c in range(n):
        for a in range(c + 1):
            mass = binom.pmf(c, n - 1, 2 / (math.exp(local) + 1)) * binom.pmf(a, c, 0.5)
            for d, chance in ((1, p), (0, 1 - p)):
                for side, pair in (("P", (a + d, c - a + 1 - d)), ("Q", (a + 1 - d, c - a + d))):
                    law[side][pair] = law[side].get(pair, 0.0) + mass * chance
    pairs = set(law["P"]) | set(law["Q"])
    gaps = [
        sum(
            max(0.0, law[x].get(pair, 0.0) - math.exp(epsilon) * law[y].get(pair, 0.0))
            for pair in pairs
        )
        for x, y in (("P", "Q"), ("Q", "P"))
    ]
    return gaps[0], gaps[1]


@pytest.mark.parametrize(("local", "n"), [(1.0, 1), (1.0, 12), (0.3, 20), (3.0, 25)])
def test_divergence_equals_the_sum_over_the_joint_law(local: float, n: int) -> None:
    """Binomial tails give what brute force gives, in both directions."""
    for epsilon in (0.05 * local, 0.4 * local, 0.9 * local):
        forward, backward = hockey_stick(epsilon, local, n)
        quick = shuffled_delta(epsilon=epsilon, local_epsilon=local, n=n, cut=1e-13)
        np.testing.assert_allclose([forward, backward], quick, rtol=1e-6, atol=1e-12)


def test_reference_values() -> None:
    """The published analysis gives 0.257 at n = 23,640, epsilon 4 and 0.149 at n = 1,000, epsilon 1
    (delta 1e-6)."""
    assert round(shuffled_epsilon(local_epsilon=4.0, n=23_640, delta=1e-6), 3) == 0.257
    assert round(shuffled_epsilon(local_epsilon=1.0, n=1_000, delta=1e-6), 3) == 0.149


def test_the_rate_quoted_in_the_paper_is_no_bound() -> None:
    """epsilon / sqrt(n) claims ten times less than what shuffling gives."""
    assert shuffled_epsilon(local_epsilon=4.0, n=23_640, delta=1e-6) > 9 * 4 / math.sqrt(23_640)


def test_more_reports_hide_better_and_nothing_exceeds_the_local_epsilon() -> None:
    """Epsilon falls as n grows, and a crowd of one hides nothing."""
    values = [
        shuffled_epsilon(local_epsilon=2.0, n=n, delta=1e-6)
        for n in (1, 10, 100, 10_000, 1_000_000)
    ]
    assert values == sorted(values, reverse=True)
    assert 1.99 < values[0] <= 2.0


def test_the_result_satisfies_its_delta() -> None:
    """The epsilon returned has a divergence at most delta; a hair below it does not."""
    epsilon = shuffled_epsilon(local_epsilon=1.0, n=500, delta=1e-5)
    assert shuffled_delta(epsilon=epsilon, local_epsilon=1.0, n=500, cut=1e-9) <= 1e-5
    assert shuffled_delta(epsilon=0.99 * epsilon, local_epsilon=1.0, n=500, cut=1e-9) > 1e-5


def test_no_reports_no_claim() -> None:
    """Zero arrived reports are refused."""
    with pytest.raises(BadInput, match="at least 1 report"):
        shuffled_epsilon(local_epsilon=1.0, n=0, delta=1e-6)
