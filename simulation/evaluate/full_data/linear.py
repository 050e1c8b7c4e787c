"""Linear regression as a learner: least squares, ridge and lasso with exact noise."""

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from confide.client.erm.objective import Objective
from confide.client.erm.output import OutputPerturbation
from confide.client.erm.statistics import SufficientStatistics
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.sampling import Entropy, words
from confide.protocol.privacy.budgets import Budget, noise_multiplier
from confide.protocol.privacy.losses import AccountedMechanism, SampledGaussian
from confide.protocol.scores.regression import AbsoluteResidual
from confide.protocol.scores.task import REGRESSION, Task
from confide.simulation.evaluate.full_data.learners import Floats, Rows

OUTPUT, STATISTICS = "output", "statistics"
RELEASES = (OUTPUT, STATISTICS)


@dataclass(frozen=True, kw_only=True)
class LinearRecipe:
    """Public numbers of a linear regression.

    Targets are clipped to `targets` for fitting, and predictions for predicting. `release` says
    where the noise is: on the solution (`output`, which needs a ridge) or on X'X and X'y.
    """

    targets: tuple[float, float]
    release: str = STATISTICS
    ridge: float = 0.0
    lasso: float = 0.0

    task: ClassVar[Task] = REGRESSION

    def __post_init__(self) -> None:
        low, high = self.targets
        if not (np.isfinite([low, high]).all() and low < high):
            raise BadInput(
                f"targets run from {low} to {high}; accepted are finite numbers in order"
            )
        check_choice("release", self.release, RELEASES)
        self._mechanism(1, 1, limit=2.0)

    def mechanism(self, n: int, budget: Budget) -> AccountedMechanism:
        """One release to which every record contributes."""
        return SampledGaussian(noise_multiplier(budget, sampling_rate=1.0, steps=1), 1.0, 1)

    def learner(
        self, features: NDArray[Any], targets: NDArray[Any], bound: float
    ) -> "LinearLearner":
        return LinearLearner(features, targets.astype(np.float64), bound, self)

    def release_of(self, *, n: int, columns: int, bound: float) -> Any:
        """The release for n records; residuals beyond the public bound pull as if at it."""
        low, high = self.targets
        return self._mechanism(n, columns, limit=min(2.0, 2 * bound / (high - low)))

    def _mechanism(
        self, n: int, columns: int, *, limit: float
    ) -> OutputPerturbation | SufficientStatistics:
        if self.release == STATISTICS:
            return SufficientStatistics(n=n, columns=columns, ridge=self.ridge, lasso=self.lasso)
        return OutputPerturbation(
            Objective(n=n, columns=columns, ridge=self.ridge, lasso=self.lasso, limit=limit)
        )


@dataclass(frozen=True)
class LinearFit:
    """Predictions for all records, and the SHA-256 of the weights they come from."""

    predictions: Floats
    targets: Floats
    score: AbsoluteResidual
    digest: bytes

    def scores(self, rows: Rows) -> NDArray[Any]:
        return self.score.true_scores(self.predictions[rows], self.targets[rows])

    def sizes(self, rows: Rows, threshold: float) -> NDArray[Any]:
        low, high = self.score.interval(self.predictions[rows], threshold)
        return np.asarray(high - low)


@dataclass(frozen=True, eq=False)
class LinearLearner:
    """A line through features within [-1, 1]: on a public scale, or a private one charged for."""

    features: NDArray[Any]
    targets: Floats
    bound: float
    recipe: LinearRecipe

    def __len__(self) -> int:
        return len(self.features)

    def mechanism(self, n: int, budget: Budget) -> AccountedMechanism:
        return self.recipe.mechanism(n, budget)

    def fit(self, rows: Rows, mechanism: AccountedMechanism | None, entropy: Entropy) -> LinearFit:
        """The number of rows divides sums, so it must be public here; the planned one is.

        Records are taken in a random order: their solution is the same up to rounding, and its law
        the same exactly.
        """
        noise = 0.0
        if mechanism is not None:
            if not isinstance(mechanism, SampledGaussian) or mechanism.sampling_rate != 1:
                raise BadInput(
                    "a linear model is released by Gaussian noise on all records, which "
                    f"{mechanism} does not describe"
                )
            noise = mechanism.noise_multiplier
        low, high = self.recipe.targets
        centre, half = (low + high) / 2, (high - low) / 2
        joined = np.column_stack([np.clip(self.features, -1, 1), np.ones(len(self))])
        scaled = np.clip((self.targets - centre) / half, -1, 1)
        order = rows[np.argsort(words(len(rows), 64, entropy), kind="stable")]
        release = self.recipe.release_of(n=len(rows), columns=joined.shape[1], bound=self.bound)
        weights = release.release(
            joined[order], scaled[order], noise_multiplier=noise, entropy=entropy
        )
        predicted = np.clip(centre + half * (joined @ weights), low, high)
        digest = hashlib.sha256(weights.tobytes()).digest()
        return LinearFit(predicted, self.targets, AbsoluteResidual(self.bound), digest)
