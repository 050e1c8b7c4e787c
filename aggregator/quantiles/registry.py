"""The mechanisms by name, within a budget, and the number of bins that suits one."""

from collections.abc import Callable
from typing import Any

import numpy as np

from confide.aggregator.quantiles.above_threshold import AboveThreshold
from confide.aggregator.quantiles.base import Mechanism
from confide.aggregator.quantiles.gaussian import GaussianSearch, NoisyMidpoint
from confide.aggregator.quantiles.histogram import Histogram
from confide.aggregator.quantiles.laplace_counts import LaplaceCounts
from confide.aggregator.quantiles.published import Dpcp, Pps
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.privacy.zcdp import zcdp_within

DEFAULT = "rank-exponential"
MECHANISMS: dict[str, Callable[..., Mechanism]] = {
    "laplace-counts": LaplaceCounts,
    "pps": Pps,
    "dpcp": Dpcp,
    "gaussian-search": GaussianSearch,
    "above-threshold": AboveThreshold,
    "rank-exponential": RankExponential,
    "noisy-midpoint": NoisyMidpoint,
}

GAUSSIAN = ("gaussian-search", "noisy-midpoint")
WITHOUT_BETA = ("dpcp", "noisy-midpoint")

_FINEST = 16
_TRIALS = 40


def within_budget(
    name: str, *, bins: int, beta: float, adjacency: str, epsilon: float, delta: float
) -> Mechanism:
    """The mechanism of this name whose release is (epsilon, delta)-DP; delta is for those with
    Gaussian noise."""
    given: dict[str, Any] = {"bins": bins, "adjacency": adjacency}
    if name not in WITHOUT_BETA:
        given["beta"] = beta
    if name in GAUSSIAN:
        given["rho"] = zcdp_within(epsilon, delta)
    else:
        given["epsilon"] = epsilon
    return MECHANISMS[name](**given)


def automatic_bins(make: Callable[[int], Mechanism], *, n: int, rank: int) -> int:
    """The number of bins of a uniform grid, a power of two, with the least mean threshold on n
    uniform scores.

    Few bins are coarse, many cost noise. As in PPS Algorithm 5 this is found by trying, on scores
    made up for it and with a public seed, so it is a function of public numbers (n among them:
    replace-one only).
    """
    if not 1 <= rank <= n:
        raise BadInput(f"rank {rank} of {n} records; accepted are ranks from 1 to n")
    rng = np.random.default_rng(0)
    drawn = [rng.multinomial(n, np.full(1 << _FINEST, 0.5**_FINEST)) for _ in range(_TRIALS)]
    least, best, worse = np.inf, 0, 0
    for bins in (1 << power for power in range(2, _FINEST + 1)):
        mechanism, grid, entropy = make(bins), uniform_grid(bins), SeededEntropy("bins", bins)
        tried = [Histogram(fine.reshape(bins, -1).sum(axis=1), grid) for fine in drawn]
        mechanism.check(tried[0], rank)
        mean = float(np.mean([grid[mechanism.choose(made, rank, entropy)] for made in tried]))
        least, best, worse = (mean, bins, 0) if mean < least else (least, best, worse + 1)
        # Past the best number the noise grows with every doubling.
        if worse == 3:
            break
    return best
