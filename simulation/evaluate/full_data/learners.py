"""What calibration on the training records needs of a learner.

Private training at a stated cost, and scores in [0, 1].

Records are named by their row numbers; the learner holds them. Besides networks
(`confide.simulation.evaluate.full_data.networks`) there are two whose truth has a closed form: a
location parameter (DPCP section 5.1) and a memoriser, the worst that privacy allows.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy, words
from confide.protocol.privacy.budgets import Budget, remaining
from confide.protocol.privacy.losses import AccountedMechanism, Gaussian, Pure
from confide.protocol.scores.regression import AbsoluteResidual

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


class Fitted(Protocol):
    """A trained model, seen through its scores."""

    def scores(self, rows: Rows) -> NDArray[Any]:
        """The score of every row's own label or target."""

    def sizes(self, rows: Rows, threshold: float) -> NDArray[Any]:
        """The size of every row's prediction set: labels, or width of the interval."""


class Planned(Protocol):
    """Training as it is planned, before there are records."""

    def mechanism(self, n: int, budget: Budget) -> AccountedMechanism:
        """The training mechanism for about n records that uses all of a budget.

        n is public here.
        """


class Learner(Planned, Protocol):
    """Permutation-invariant training, as private as the mechanism under add-remove."""

    def __len__(self) -> int:
        """Records held."""

    def fit(self, rows: Rows, mechanism: AccountedMechanism | None, entropy: Entropy) -> Fitted:
        """Train on the rows; without a mechanism, without privacy."""


@dataclass(frozen=True)
class LocationFit:
    """y = x + b."""

    rest: Floats
    location: float
    score: AbsoluteResidual

    def scores(self, rows: Rows) -> NDArray[Any]:
        return self.score.true_scores(np.full(len(rows), self.location), self.rest[rows])

    def sizes(self, rows: Rows, threshold: float) -> NDArray[Any]:
        low, high = self.score.interval(np.zeros(len(rows)), threshold)
        return np.asarray(high - low)


@dataclass(frozen=True)
class Location:
    """The mean of y - x, clipped to +-`bound`, with Laplace noise (DPCP section 5.1).

    Scores are residuals over `scale`.

    The sum is divided by a public number of records, so one more moves it by at most bound/n. DPCP
    divides by the number it has, with noise 6 sigma/(n epsilon): private when a record is replaced,
    but not when one is added, because then the two noise scales differ and the ratio of their tails
    has no bound. Its transfer from n to n+1 records needs the latter.
    """

    rest: Floats
    bound: float
    scale: float

    def __len__(self) -> int:
        return len(self.rest)

    def mechanism(self, n: int, budget: Budget) -> AccountedMechanism:
        return Pure(budget.epsilon)

    def fit(
        self, rows: Rows, mechanism: AccountedMechanism | None, entropy: Entropy
    ) -> LocationFit:
        mean = float(np.clip(self.rest[rows], -self.bound, self.bound).mean())
        if mechanism is not None:
            if not isinstance(mechanism, Pure):
                raise BadInput(
                    f"a location is released by Laplace noise, which {type(mechanism).__name__} "
                    "does not describe"
                )
            mean += self.bound / (len(rows) * mechanism.epsilon) * _laplace(entropy)
        return LocationFit(self.rest, mean, AbsoluteResidual(self.scale))


def _uniform(count: int, entropy: Entropy) -> Floats:
    """Numbers inside (0, 1), for mechanisms as they were published.

    Noise is in floating point, so this is for simulations only.
    """
    return np.asarray(((words(count, 64, entropy) >> np.uint64(11)) + 0.5) * 2.0**-53)


def _laplace(entropy: Entropy) -> float:
    """One standard Laplace draw by inversion."""
    uniform = float(_uniform(1, entropy)[0])
    return math.copysign(math.log1p(-2 * abs(uniform - 0.5)), 0.5 - uniform)


@dataclass(frozen=True)
class Memory:
    """For every possible record, whether it was trained on, plus noise.

    The score of a record is small if it seems to have been.
    """

    seen: Floats
    spread: float

    def scores(self, rows: Rows) -> NDArray[Any]:
        return np.asarray(ndtr(-self.seen[rows] / self.spread))

    def sizes(self, rows: Rows, threshold: float) -> NDArray[Any]:
        return np.full(len(rows), threshold)


@dataclass(frozen=True)
class Memoriser:
    """Learns nothing and remembers its records as well as mu-GDP allows.

    The construction of SCP Theorem 2(b).

    In-sample scores are those of N(1, 1/mu^2), others of N(0, 1/mu^2): the share a of in-sample
    scores above a threshold and the share of others above it are exactly the two errors of the
    trade-off curve. So no bound from privacy alone can be better, and one that is not valid shows.
    """

    total: int

    def __len__(self) -> int:
        return self.total

    def mechanism(self, n: int, budget: Budget) -> AccountedMechanism:
        return Gaussian(remaining(budget, Gaussian))

    def fit(self, rows: Rows, mechanism: AccountedMechanism | None, entropy: Entropy) -> Memory:
        spread = 1 / mechanism.mu if isinstance(mechanism, Gaussian) else 1e-3
        seen = np.zeros(self.total)
        seen[rows] = 1.0
        return Memory(seen + spread * ndtri(_uniform(self.total, entropy)), spread)
