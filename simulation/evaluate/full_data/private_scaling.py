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
from confide.simulation.evaluate.full_data.learners import Fitted, Learner, Planned, Rows

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

    def quantile(self, features: int) -> RankExponential:
        """The mechanism of each bound."""
        each = self.epsilon / (2 * features)
        return RankExponential(bins=_BINS, beta=_BETA, epsilon=each, adjacency=ADD_REMOVE)

    def rank(self, n: int, quantile: RankExponential) -> int:
        """The rank to ask for: the mechanism aims above it, by a margin not needed here."""
        return max(1, math.ceil(LEVEL * (n + 1)) - quantile.margin + 1)

    def release(self, features: NDArray[Any], entropy: Entropy) -> Scaling:
        """The scaling for features that lie within [-1, 1] by public limits."""
        n, d = features.shape
        quantile = self.quantile(d)
        rank = self.rank(n, quantile)

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
