"""Mechanisms that certify nothing, which no campaign uses: they are here to compare with."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.quantiles.base import CERTIFIED, REPLACE_ONE, Mechanism
from confide.aggregator.quantiles.histogram import histogram
from confide.aggregator.quantiles.registry import (
    MECHANISMS,
    certified_names,
    usual_beta,
    within_budget,
)
from confide.protocol.certificate import MARGINAL
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.grids import GRIDS, MIXED, check_bins, public_grid
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.registry import find_score
from confide.simulation.arrays.measured import measured_on
from confide.simulation.arrays.trial import Trial
from confide.simulation.data.population import Predictions
from confide.simulation.evaluate.repeated import Repeated, Row, measured


@dataclass(frozen=True, kw_only=True)
class Uncertified(Repeated):
    """Releases of a mechanism that certifies nothing, whose name is the variant."""

    method: str = "central"
    score: str = "hps"
    beta: float | None = None
    bins: int = Mechanism.usual_bins
    grid: str = MIXED
    privacy_delta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        accepted = [name for name in MECHANISMS if name not in certified_names()]
        check_choice("mechanism that certifies nothing", self.variant, accepted)
        check_choice("grid", self.grid, GRIDS)
        check_bins(self.bins)
        needs = MECHANISMS[self.variant].needs_delta
        if needs != (self.privacy_delta > 0):
            asked = "above 0" if needs else "0, because it is pure"
            raise BadInput(
                f"privacy_delta is {self.privacy_delta} with mechanism {self.variant}; accepted "
                f"is {asked}"
            )

    @property
    def mechanism(self) -> Mechanism:
        usual = usual_beta(self.variant, n=self.n, alpha=self.alpha, epsilon=self.epsilon)
        return within_budget(
            self.variant,
            bins=self.bins,
            beta=usual if self.beta is None else self.beta,
            adjacency=REPLACE_ONE,
            epsilon=self.epsilon,
            delta=self.privacy_delta,
        )

    def prepared(self, records: Predictions, rng: np.random.Generator) -> "_Prepared":
        score, mechanism = find_score(self.score), self.mechanism
        # An infeasible rank is said before anything is drawn.
        mechanism.rank(n=self.n, alpha=self.alpha)
        u = rng.random(len(records)) if score.randomized else None
        own = score.true_scores(records.results, records.truth, u=u)
        return _Prepared(records, mechanism, u, own)

    def row(self, prepared: "_Prepared", trial: Trial) -> Row:
        records, mechanism, u, own = prepared
        rest, held = trial.test, trial.arrived
        rank = mechanism.rank(n=len(held), alpha=self.alpha)
        counts = histogram(own[held], public_grid(self.grid, self.bins))
        threshold = mechanism.release(counts, rank, trial.entropy).threshold
        found = measured_on(
            Predictor(find_score(self.score), threshold),
            records.results[rest],
            records.truth[rest],
            u=None if u is None else u[rest],
        )
        return measured(threshold, found.coverage, found.size, level=None) | {"reports": len(held)}

    def resolved(self, records: Predictions, rows: list[Row]) -> Row:
        mechanism, score = self.mechanism, find_score(self.score)
        assert mechanism.certificate != CERTIFIED
        return {
            "score": score.text,
            "labels": records.results.shape[1] if score.task.of_labels else None,
            "channel": self.variant,
            "exact_epsilon": mechanism.privacy.epsilon_at(self.privacy_delta or 0.5),
            "kind": MARGINAL,
            "certificate": mechanism.certificate,
            "adjacency": REPLACE_ONE,
            "rank": mechanism.rank(n=self.n, alpha=self.alpha),
        }


class _Prepared(NamedTuple):
    """The records, what is released, and the scores of the truth with their uniform numbers."""

    records: Predictions
    mechanism: Mechanism
    u: NDArray[np.float64] | None
    own: NDArray[Any]
