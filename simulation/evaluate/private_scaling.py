"""Features on a scale that is read off the records, privately and at a price."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.quantiles.base import ADD_REMOVE
from confide.aggregator.quantiles.histogram import histogram
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.client.training.scaling import Scaling, public_scaling
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import Entropy
from confide.protocol.privacy.budgets import Budget
from confide.protocol.privacy.losses import AccountedMechanism
from confide.simulation.evaluate.learners import Fitted, Learner, Planned, Rows

# Share of the values of a feature that lie below its upper bound, and above its lower one: about,
# for bounds are drawn around it. So many must lie beyond that few draws pass all of them.
LEVEL = 0.95
_BINS = 256
_BETA = 0.01


@dataclass(frozen=True)
class PrivateScaling:
    """Bounds of every feature, by private quantiles on a grid between its public limits.

    Each of the two bounds of d features is a rank-exponential release of epsilon/(2d), so that
    all together are epsilon-DP under add-remove: its target, ceil(LEVEL (n + 1)), follows n by
    steps of 0 or 1. Where the bounds of a feature cross, they become its public limits.
    """

    epsilon: float

    def release(self, features: NDArray[Any], entropy: Entropy) -> Scaling:
        """The scaling for features that lie within [-1, 1] by public limits."""
        n, d = features.shape
        quantile = RankExponential(
            bins=_BINS, beta=_BETA, epsilon=self.epsilon / (2 * d), adjacency=ADD_REMOVE
        )
        # The mechanism aims above the rank it is given, by a margin that is not needed here.
        rank = max(1, math.ceil(LEVEL * (n + 1)) - quantile.margin + 1)

        def upper(values: NDArray[Any]) -> float:
            counts = histogram((np.clip(values, -1, 1) + 1) / 2, uniform_grid(_BINS))
            return 2 * quantile.release(counts, rank, entropy).threshold - 1

        high = np.array([upper(features[:, i]) for i in range(d)])
        low = -np.array([upper(-features[:, i]) for i in range(d)])
        apart = low < high
        return public_scaling(np.where(apart, low, -1.0), np.where(apart, high, 1.0))


@dataclass(frozen=True, eq=False)
class Scaled:
    """A learner that first scales all features by bounds of the records it trains on."""

    features: NDArray[Any]
    plan: Planned
    scaling: PrivateScaling
    make: Callable[[NDArray[Any]], Learner]

    def __len__(self) -> int:
        return len(self.features)

    def mechanism(self, n: int, budget: Budget) -> AccountedMechanism:
        return self.plan.mechanism(n, budget)

    def fit(self, rows: Rows, mechanism: AccountedMechanism | None, entropy: Entropy) -> Fitted:
        scaling = self.scaling.release(self.features[rows], entropy)
        return self.make(scaling(self.features)).fit(rows, mechanism, entropy)
