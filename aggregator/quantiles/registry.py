"""The quantile mechanisms by name, and the number of bins that suits one.

To add a mechanism, write its module, register it here, and register its verifier in
`confide.protocol.cards.verify.counts.recompute`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from confide.aggregator.quantiles.above_threshold import AboveThreshold
from confide.aggregator.quantiles.base import CERTIFIED, REPLACE_ONE, Mechanism
from confide.aggregator.quantiles.gaussian import GaussianSearch, NoisyMidpoint
from confide.aggregator.quantiles.histogram import Histogram
from confide.aggregator.quantiles.laplace_counts import LaplaceCounts
from confide.aggregator.quantiles.published import Dpcp, Pps, pps_gamma
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import SeededEntropy

DEFAULT = RankExponential.name
MECHANISMS: dict[str, type[Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        LaplaceCounts,
        Pps,
        Dpcp,
        GaussianSearch,
        AboveThreshold,
        RankExponential,
        NoisyMidpoint,
    )
}

# The part of alpha that is left to a mechanism which needs one, where nobody chose it.
USUAL_BETA = 0.002
_FINEST = 16
_TRIALS = 40


def register(mechanism: type[Mechanism]) -> type[Mechanism]:
    """Make a mechanism known by its name; a name that another mechanism has is refused."""
    if MECHANISMS.setdefault(mechanism.name, mechanism) is not mechanism:
        raise BadInput(
            f"mechanism {mechanism.name!r} is registered already; accepted is a new name"
        )
    return mechanism


def within_budget(
    name: str, *, bins: int, beta: float, adjacency: str, epsilon: float, delta: float
) -> Mechanism:
    """The mechanism of this name whose release is (epsilon, delta)-DP.

    A beta of 0 leaves no part of alpha to it: its coverage is averaged over its draws.
    """
    check_choice("mechanism", name, MECHANISMS)
    return MECHANISMS[name].within(
        epsilon=epsilon, delta=delta, beta=beta or None, bins=bins, adjacency=adjacency
    )


def needs_delta(name: str) -> bool:
    """Whether the budget of this mechanism must have a delta above 0; False of an unknown name."""
    return name in MECHANISMS and MECHANISMS[name].needs_delta


def averages(name: str) -> bool:
    """Whether this mechanism certifies coverage without a beta; False of an unknown name."""
    return name in MECHANISMS and MECHANISMS[name].averages


def usual_beta(name: str, *, n: int, alpha: float, epsilon: float) -> float:
    """The beta of a mechanism where nobody chose one, from public numbers; 0: it needs none."""
    if averages(name):
        return 0.0
    if name == Pps.name:
        return pps_gamma(n=n, alpha=alpha, epsilon=epsilon) * alpha
    return min(USUAL_BETA, alpha / 2)


def usual_bins(
    name: str, *, n: int, alpha: float, beta: float, epsilon: float, delta: float
) -> int:
    """The number of bins of a mechanism where nobody chose one, from public numbers.

    Without a beta, bins cost log(bins) / (0.75 epsilon) ranks and no more, so that enough for any
    score are taken. Other mechanisms pay more for each, and have the best number for uniform scores
    (`automatic_bins`, m* of PPS).
    """
    if name not in MECHANISMS or not beta:
        return Mechanism.usual_bins
    return _best_bins(name, n=n, alpha=alpha, beta=beta, epsilon=epsilon, delta=delta)


@lru_cache(maxsize=64)
def _best_bins(
    name: str, *, n: int, alpha: float, beta: float, epsilon: float, delta: float
) -> int:
    """Asked for by every trial of an evaluation, and made once: it takes about a second."""

    def make(bins: int) -> Mechanism:
        return MECHANISMS[name].within(
            epsilon=epsilon, delta=delta, beta=beta, bins=bins, adjacency=REPLACE_ONE
        )

    try:
        return automatic_bins(make, n=n, rank=make(4).rank(n=n, alpha=alpha))
    except BadInput:
        # So few records have no rank, or so small a beta no mechanism; whoever asks is told so.
        return MECHANISMS[name].usual_bins


def certified_names() -> list[str]:
    """The mechanisms that certify what they release, as campaigns ask for."""
    usual: dict[str, Any] = {"bins": 16, "adjacency": REPLACE_ONE}
    made = (one.within(epsilon=1.0, delta=1e-6, beta=0.01, **usual) for one in MECHANISMS.values())
    return [mechanism.name for mechanism in made if mechanism.certificate == CERTIFIED]


def automatic_bins(make: Callable[[int], Mechanism], *, n: int, rank: int) -> int:
    """The number of bins, a power of two, with the least mean threshold on n uniform scores.

    Few bins are coarse, many cost noise. As in PPS Algorithm 5 the numbers are tried one by one, on
    synthetic scores drawn with a public seed, so the result depends on public numbers only (n among
    them: replace-one only).
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
