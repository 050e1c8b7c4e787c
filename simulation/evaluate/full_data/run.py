"""Run a pipeline that trains and calibrates, and measure it on rows that took no part."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.cards.full_data import FullDataContract, full_data_formal
from confide.aggregator.cards.issue import provenance
from confide.aggregator.cards.released import Released
from confide.aggregator.procedures.full_data.levels import PUBLISHED_BUFFER, Stability
from confide.aggregator.procedures.full_data.published_bounds import Smoothness
from confide.aggregator.quantiles.histogram import histogram
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.cards.card import PUBLIC, Card
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.training.terms import NOISE
from confide.protocol.privacy.budgets import Budget
from confide.protocol.privacy.losses import AccountedMechanism, SampledGaussian
from confide.protocol.privacy.profiles import PLD
from confide.protocol.scores.registry import find_label_score
from confide.protocol.scores.regression import AbsoluteResidual
from confide.simulation.arrays.trial import Trial
from confide.simulation.data.population import Lessons
from confide.simulation.evaluate.full_data.learners import Fitted, Learner, Rows
from confide.simulation.evaluate.full_data.linear import LinearFit, LinearRecipe
from confide.simulation.evaluate.full_data.networks import (
    Labels,
    NetworkFit,
    NetworkLearner,
    Numbers,
    Recipe,
)
from confide.simulation.evaluate.full_data.pipelines import PIPELINES
from confide.simulation.evaluate.full_data.private_scaling import PrivateScaling, Scaled
from confide.simulation.evaluate.full_data.terms import BINS, Pipeline, PipelineTerms
from confide.simulation.evaluate.repeated import Repeated, Row, measured


@dataclass
class Trainings:
    """The models of one trial, trained once for all pipelines that agree on rows and noise."""

    learner: Learner
    rows: Rows
    entropy: Entropy
    _made: dict[tuple[bool, AccountedMechanism | None], Fitted] = field(default_factory=dict)

    def fitted(self, pipeline: Pipeline) -> Fitted:
        """The model of a pipeline that was run."""
        return self._made[pipeline.halves, pipeline.training]

    def run(self, pipeline: Pipeline) -> tuple[Fitted, float]:
        """The model of a pipeline and its threshold."""
        half = len(self.rows) // 2
        first, second = (
            (self.rows[:half], self.rows[half:]) if pipeline.halves else (self.rows, self.rows)
        )
        key = pipeline.halves, pipeline.training
        if key not in self._made:
            self._made[key] = self.learner.fit(first, pipeline.training, self.entropy)
        return self._made[key], self._quantile(pipeline, self._made[key].scores(second))

    def _quantile(self, pipeline: Pipeline, scores: NDArray[Any]) -> float:
        if pipeline.quantile is None:
            return float(np.partition(scores, pipeline.rank - 1)[pipeline.rank - 1])
        counts = histogram(scores, uniform_grid(pipeline.quantile.bins))
        return pipeline.quantile.release(counts, pipeline.rank, self.entropy).threshold


def measure(trainings: Trainings, pipeline: Pipeline, test: Rows) -> Row:
    """One run of a pipeline, measured on rows that it has not seen."""
    fitted, threshold = trainings.run(pipeline)
    sizes = fitted.sizes(test, threshold)
    coverage = float(np.mean(fitted.scores(test) <= np.float64(threshold)))
    row = measured(threshold, coverage, float(sizes.mean()), level=pipeline.promise.level)
    return row | {"singletons": float(np.mean(sizes == 1))}


@lru_cache(maxsize=4)
def _planned(variant: str, terms: PipelineTerms, recipe: Recipe | LinearRecipe) -> Pipeline:
    """Accounting takes seconds, and is asked for before the trials and after."""
    return PIPELINES[variant](terms, recipe)


@dataclass(frozen=True, kw_only=True)
class FullData(Repeated):
    """Train and calibrate on n records; `variant` is a pipeline.

    (epsilon, privacy_delta) is the budget of both together, and of private scaling where
    `scaling_epsilon` is not 0. The recipe says which model is trained.
    """

    method: str = "full-data"
    variant: str = "certified"
    score: str = "hps"
    privacy_delta: float = 1e-5
    share: float = 0.5
    beta: float = 1e-3
    bins: int = BINS
    buffer: int = PUBLISHED_BUFFER
    stability: Stability | None = None
    smoothness: Smoothness | None = None
    theorem_15_failure: float | None = None
    scaling_epsilon: float = 0.0
    accountant: str = PLD
    recipe: Recipe | LinearRecipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("variant of full-data", self.variant, PIPELINES)
        find_label_score(self.score)

    def learner(self, records: Lessons) -> Learner:
        """The learner on features by public limits, or by private bounds within these."""
        if not self.scaling_epsilon:
            return self._made(records, records.features)
        scaling = PrivateScaling(self.scaling_epsilon)
        return Scaled(
            records.features, self.recipe, scaling, lambda features: self._made(records, features)
        )

    def _made(self, records: Lessons, features: NDArray[Any]) -> Learner:
        targets, recipe = records.targets, self.recipe
        if isinstance(recipe, LinearRecipe):
            if records.bound is None:
                raise BadInput(f"a linear model is for the task {recipe.task}, with a public bound")
            return recipe.learner(features, targets, records.bound)
        task = (
            Labels(targets, self.score)
            if records.bound is None
            else Numbers(targets.astype(np.float64), records.bound)
        )
        return NetworkLearner(features, task, recipe)

    @property
    def pipeline(self) -> Pipeline:
        budget = Budget(self.epsilon, self.privacy_delta, self.accountant)
        terms = PipelineTerms(
            self.n,
            budget,
            alpha=self.alpha,
            beta=self.beta,
            share=self.share,
            bins=self.bins,
            buffer=self.buffer,
            stability=self.stability,
            smoothness=self.smoothness,
            failure=self.theorem_15_failure,
            scaling=self.scaling_epsilon,
        )
        return _planned(self.variant, terms, self.recipe)

    def prepared(self, records: Lessons, rng: np.random.Generator) -> tuple[Learner, Pipeline]:
        return self.learner(records), self.pipeline

    def row(self, prepared: tuple[Learner, Pipeline], trial: Trial) -> Row:
        learner, pipeline = prepared
        trainings = Trainings(learner, trial.arrived, trial.entropy)
        row = measure(trainings, pipeline, trial.test)
        fitted = trainings.fitted(pipeline)
        assert isinstance(fitted, NetworkFit | LinearFit)
        return row | {"model": fitted.digest.hex()}

    def card(self, records: Lessons, result: dict[str, Any], *, issued: datetime) -> Card:
        """The contract card of the certified pipeline, not yet signed.

        It is for the model and the threshold of the first trial.
        """
        pipeline = self.pipeline
        if self.scaling_epsilon:
            raise BadInput(
                "a card is asked for with private scaling, which no card states; accepted are "
                "public limits of the features"
            )
        if not (isinstance(pipeline.training, SampledGaussian) and pipeline.method == "certified"):
            raise BadInput(
                f"variant is {self.variant}; a card needs a certificate for private training: "
                "accepted is certified"
            )
        assert isinstance(pipeline.quantile, RankExponential)
        level = round(1 - self.alpha, 12)
        contract = FullDataContract(
            records.name, level, self.beta, self.epsilon, self.privacy_delta
        )
        origin = provenance(plan=None, issued=issued.isoformat(), training_noise=NOISE)
        trial = result["trials"][0]
        shown = {name: trial[name] for name in ("coverage", "mean_size") if trial[name] is not None}
        released = Released(
            bytes.fromhex(trial["model"]),
            (
                find_label_score(self.score)
                if records.bound is None
                else AbsoluteResidual(records.bound)
            ),
            0 if records.bound is not None else int(records.targets.max()) + 1,
            trial["threshold"],
            result["arguments"]["randomness"],
        )
        formal = full_data_formal(
            contract, pipeline.training, pipeline.quantile, n=self.n, released=released
        )
        return Card(formal, shown, origin, view=PUBLIC)

    def resolved(self, records: Lessons, rows: list[Row]) -> Row:
        pipeline = self.pipeline
        spent = (
            None
            if pipeline.profile is None
            else pipeline.profile.epsilon(self.privacy_delta, accountant=self.accountant)
        )
        return {
            "labels": None if records.bound is not None else int(records.targets.max()) + 1,
            "bound": records.bound,
            "channel": "exact" if pipeline.quantile is None else pipeline.quantile.name,
            "exact_epsilon": spent,
            "kind": "marginal",
            "adjacency": pipeline.adjacency,
            "rank": pipeline.rank,
            "training": None if pipeline.training is None else asdict(pipeline.training),
            "expected_distance": self._distances(records, pipeline),
            **asdict(pipeline.promise),
        }

    def _distances(self, records: Lessons, pipeline: Pipeline) -> dict[str, float] | None:
        """SCP Theorem 4 as it applies to this training, and its published expression."""
        training, recipe = pipeline.training, self.recipe
        if self.smoothness is None or not isinstance(training, SampledGaussian):
            return None
        assert isinstance(recipe, Recipe)
        outputs = 1 if records.bound is not None else int(records.targets.max()) + 1
        weights = recipe.weights(records.features.shape[1], outputs)
        return {
            "this_training": self.smoothness.distance(training, n=self.n),
            "published": self.smoothness.published_distance(training, n=self.n, weights=weights),
        }
