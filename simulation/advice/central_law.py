"""The law of the threshold that a trusted curator publishes, for known records.

The mechanism's own law on the counts of n records that lie exactly as the curve says, and around
it the scatter of a rank of n records: coverage at the record of rank r has the standard error
sqrt(c (1 - c)/n).
"""

import math

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.central import planned_rank
from confide.aggregator.quantiles.histogram import histogram
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import public_grid
from confide.simulation.advice.curves import Curve
from confide.simulation.evaluate.central import Central

Floats = NDArray[np.float64]

CAMPAIGNS = 400
# More records than this are not written down: nothing is lost to privacy any more.
_MOST = 1_000_000


def central_law(curve: Curve, *, n: int, epsilon: float, alpha: float, delta: float) -> Floats:
    """Thresholds of CAMPAIGNS releases that promise PAC coverage; 1 where there is none."""
    n = min(n, _MOST)
    setting = Central(
        epsilon=epsilon, alpha=alpha, n=n, score=curve.score, failure_probability=delta
    )
    mechanism = setting.mechanism
    try:
        rank = planned_rank(mechanism, setting.terms, n=n, alpha=alpha)
    except BadInput:
        return np.ones(CAMPAIGNS)
    edges = public_grid(setting.grid, setting.thresholds)
    expected = curve.threshold((np.arange(n) + 0.5) / n)
    chances = np.array([float(p) for p in mechanism.law(histogram(expected, edges), rank)])
    # Quantiles of the law, and of the scatter around each, in an order that is independent of it.
    shares = (np.arange(CAMPAIGNS) + 0.5) / CAMPAIGNS
    bins = np.searchsorted(chances.cumsum(), shares * chances.sum()).clip(max=len(edges) - 1)
    scatter = np.random.default_rng(10).normal(size=CAMPAIGNS)
    covered = curve.coverage(edges[bins])
    shifted = covered + scatter * np.sqrt(covered * (1 - covered)) / math.sqrt(n)
    moved = np.maximum(curve.threshold(np.clip(shifted, 0.0, 1.0)), 0.0)
    return np.where(edges[bins] >= 1, 1.0, np.where(covered < 1, moved, edges[bins]))
