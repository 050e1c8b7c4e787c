import numpy as np
from scipy.stats import binom

from confide.protocol.privacy.binomial import above, below, lower_quantile, masses, upper_quantile


def test_tails_are_those_of_scipy() -> None:
    """Upper ones to the last bit, lower ones to eleven digits, beyond both ends too."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 30, 1_000, 200_000):
        p = rng.uniform(0.001, 0.999, 400)
        k = np.concatenate([rng.integers(-2, n + 3, 200), rng.binomial(n, p[200:])])
        assert np.array_equal(above(k, n, p), binom.sf(k, n, p))
        np.testing.assert_allclose(below(k, n, p), binom.cdf(k - 1, n, p), rtol=1e-11, atol=1e-300)


def test_quantiles_are_the_least_counts() -> None:
    """One count less has too much above it, or too little up to it."""
    n, p, level = 500, 0.3, 0.01
    upper, lower = upper_quantile(level, n, p), lower_quantile(level, n, p)
    assert above(upper, n, p) <= level < above(upper - 1, n, p)
    assert below(lower, n, p) < level <= below(lower + 1, n, p)
    inside = masses(np.arange(lower, upper + 1), n, p).sum()
    assert abs(inside - (1 - below(lower, n, p) - above(upper, n, p))) < 1e-12
