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

from confide.aggregator.procedures.counts.central import draw_afresh, trusted
from confide.aggregator.quantiles.base import Release
from confide.aggregator.quantiles.histogram import Histogram
from confide.protocol.certificate import PAC
from confide.protocol.methods.counts.central import CentralTerms
from confide.simulation.advice.curves import SizeCurve
from confide.simulation.driver import CountingOwner, drive
from confide.simulation.planning import plan

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
    """Thresholds of `campaigns` releases; 1 where nothing is released."""
    curve, n = asked.curve, min(asked.n, _MOST)
    planned = plan(
        "central:trusted",
        records=n,
        labels=curve.k,
        score=curve.score,
        epsilon=asked.epsilon,
        alpha=asked.alpha,
        guarantee=PAC,
        failure_probability=asked.delta,
    )
    terms, laws = CentralTerms.of(planned.terms), []

    def draw(mechanism: Any, counts: Histogram, rank: int) -> Release:
        laws.append(np.array([float(p) for p in mechanism.law(counts, rank)]))
        return draw_afresh(mechanism, counts, rank)

    expected = curve.threshold((np.arange(n) + 0.5) / n)
    drive(trusted(terms, alpha=asked.alpha, draw=draw), CountingOwner(expected))
    if not laws:
        return np.ones(campaigns)
    chances, edges = laws[0], terms.edges
    # Quantiles of the law, and of the scatter around each, in an order that is independent of it.
    shares = (np.arange(campaigns) + 0.5) / campaigns
    bins = np.searchsorted(chances.cumsum(), shares * chances.sum()).clip(max=len(edges) - 1)
    scatter = np.random.default_rng(10).normal(size=campaigns)
    covered = curve.coverage(edges[bins])
    shifted = covered + scatter * np.sqrt(covered * (1 - covered)) / math.sqrt(n)
    moved = np.maximum(curve.threshold(np.clip(shifted, 0.0, 1.0)), 0.0)
    return np.where(edges[bins] >= 1, 1.0, np.where(covered < 1, moved, edges[bins]))
