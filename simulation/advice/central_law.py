"""The law of the threshold that a trusted curator publishes, for known records.

The mechanism's own law on the counts of n records that lie exactly as the curve says, and around
it the scatter of a rank of n records: coverage at the record of rank r has the standard error
sqrt(c (1 - c)/n).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.central import planned_rank
from confide.aggregator.quantiles.histogram import histogram
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import public_grid
from confide.simulation.advice.curves import SizeCurve
from confide.simulation.evaluate.central import Central

Floats = NDArray[np.float64]

CAMPAIGNS = 400
# More records than this are not written down: nothing is lost to privacy any more.
_MOST = 1_000_000


@dataclass(frozen=True, eq=False)
class CountCase:
    """A trusted calibration whose law is asked for; it promises PAC coverage."""

    curve: SizeCurve
    n: int
    epsilon: float
    alpha: float
    delta: float


def central_law(asked: CountCase, *, campaigns: int = CAMPAIGNS) -> Floats:
    """Thresholds of as many releases; 1 where there is none."""
    curve, n = asked.curve, min(asked.n, _MOST)
    setting = Central(
        epsilon=asked.epsilon,
        alpha=asked.alpha,
        n=n,
        score=curve.score,
        failure_probability=asked.delta,
    )
    mechanism: Any = setting.mechanism
    try:
        rank = planned_rank(mechanism, setting.terms, n=n, alpha=asked.alpha)
    except BadInput:
        return np.ones(campaigns)
    edges = public_grid(setting.grid, setting.thresholds)
    expected = curve.threshold((np.arange(n) + 0.5) / n)
    chances = np.array([float(p) for p in mechanism.law(histogram(expected, edges), rank)])
    # Quantiles of the law, and of the scatter around each, in an order that is independent of it.
    shares = (np.arange(campaigns) + 0.5) / campaigns
    bins = np.searchsorted(chances.cumsum(), shares * chances.sum()).clip(max=len(edges) - 1)
    scatter = np.random.default_rng(10).normal(size=campaigns)
    covered = curve.coverage(edges[bins])
    shifted = covered + scatter * np.sqrt(covered * (1 - covered)) / math.sqrt(n)
    moved = np.maximum(curve.threshold(np.clip(shifted, 0.0, 1.0)), 0.0)
    return np.where(edges[bins] >= 1, 1.0, np.where(covered < 1, moved, edges[bins]))
