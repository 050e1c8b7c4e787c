"""Private split calibration with a trusted curator, by any quantile mechanism."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.central import planned_rank, trusted
from confide.aggregator.quantiles.base import CERTIFIED, REPLACE_ONE, Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram, histogram
from confide.aggregator.quantiles.registry import (
    DEFAULT,
    MECHANISMS,
    averages,
    certified_names,
    usual_beta,
    usual_bins,
    within_budget,
)
from confide.protocol.errors import BadInput, check_choice, check_epsilon, check_probability
from confide.protocol.exact.grids import GRIDS, MIXED, check_bins, public_grid
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.central import TRUSTED, CentralTerms
from confide.protocol.scores.registry import find_label_score
from confide.simulation.data.population import Population, Predictions, Scored
from confide.simulation.driver import CountingOwner, drive
from confide.simulation.evaluate.trials import Repeated, Row, Trial, arrived, measured


@dataclass(frozen=True, kw_only=True)
class Central(Repeated):
    """Calibration of a given model; `variant` is the quantile mechanism.

    n is public, and adjacency is replace-one. `beta` is the part of alpha that is left to the
    mechanism: 0 averages coverage over its draws. That is the default where the mechanism can.
    With a `failure_probability` the promise is PAC, and beta is a part of that.
    """

    method: str = "central"
    variant: str = DEFAULT
    score: str = "hps"
    beta: float | None = None
    bins: int | None = None
    grid: str = MIXED
    privacy_delta: float = 0.0
    failure_probability: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("mechanism", self.variant, MECHANISMS)
        find_label_score(self.score)
        check_epsilon(self.epsilon)
        if self.beta is None:
            numbers: dict[str, Any] = {"n": self.n, "alpha": self.alpha, "epsilon": self.epsilon}
            object.__setattr__(self, "beta", usual_beta(self.variant, **numbers))
        elif self.beta or not averages(self.variant):
            check_probability("beta", self.beta)
        check_choice("grid", self.grid, GRIDS)
        if self.bins is None:
            object.__setattr__(self, "bins", self._usual_bins())
        check_bins(self.thresholds)
        if self.failure_probability is not None:
            check_probability("failure_probability", self.failure_probability)
        self.terms.check(labels=0, alpha=self.alpha)
        needs_delta = MECHANISMS[self.variant].needs_delta
        if needs_delta != (self.privacy_delta > 0):
            needs = (
                "needs --privacy-delta above 0"
                if needs_delta
                else "is pure, so --privacy-delta must be 0"
            )
            raise BadInput(f"privacy_delta is {self.privacy_delta}; {self.variant} {needs}")

    @property
    def part(self) -> float:
        """The part of alpha that is left to the mechanism."""
        return self.beta or 0.0

    @property
    def thresholds(self) -> int:
        """The number of bins."""
        return self.bins or Mechanism.usual_bins

    def _usual_bins(self) -> int:
        return usual_bins(
            self.variant,
            n=self.n,
            alpha=self.alpha,
            beta=self.part,
            epsilon=self.epsilon,
            delta=self.privacy_delta,
        )

    @property
    def mechanism(self) -> Mechanism:
        return within_budget(
            self.variant,
            bins=self.thresholds,
            beta=self.part,
            adjacency=REPLACE_ONE,
            epsilon=self.epsilon,
            delta=self.privacy_delta,
        )

    def prepared(self, records: Population | Predictions, rng: np.random.Generator) -> "_Prepared":
        mechanism = self.mechanism
        # An infeasible rank is said before anything is drawn.
        self._rank(mechanism)
        scored = records.scored(self.score, rng.random(len(records)))
        return _Prepared(mechanism, scored, scored.own)

    def row(self, prepared: "_Prepared", trial: Trial) -> Row:
        mechanism, scored, _ = prepared
        here = trial.calibration[arrived(trial)]
        level = 1 - self.alpha if mechanism.certificate == CERTIFIED else None
        threshold = self._threshold(mechanism, scored.own[here], trial.entropy)
        own, size = scored.own[trial.test], scored.mean_size(trial.test, threshold)
        return measured(threshold, own, size, level=level) | {"reports": len(here)}

    def _threshold(self, mechanism: Mechanism, scores: NDArray[Any], entropy: Entropy) -> float:
        """A certified mechanism runs the procedure of campaigns; another one releases by itself."""

        def draw(chosen: Mechanism, counts: Histogram, rank: int) -> Release:
            return chosen.release(counts, rank, entropy)

        if mechanism.certificate != CERTIFIED:
            counts = histogram(scores, public_grid(self.grid, self.thresholds))
            return draw(mechanism, counts, self._rank(mechanism)).threshold
        owner = CountingOwner(scores)
        return drive(trusted(self.terms, alpha=self.alpha, draw=draw), owner).threshold

    @property
    def terms(self) -> CentralTerms:
        """The terms of a campaign that does the same."""
        return CentralTerms(
            variant=TRUSTED,
            mechanism=self.variant,
            epsilon=self.epsilon,
            bins=self.thresholds,
            grid=self.grid,
            beta=self.part,
            privacy_delta=self.privacy_delta,
            delta=self.failure_probability or 0.0,
        )

    def _rank(self, mechanism: Mechanism) -> int:
        if self.failure_probability is None:
            return mechanism.rank(n=self.n, alpha=self.alpha)
        if mechanism.certificate != CERTIFIED:
            raise BadInput(
                f"{self.variant} certifies nothing, so it makes no PAC promise; accepted: "
                f"{', '.join(certified_names())}"
            )
        return planned_rank(mechanism, self.terms, n=self.n, alpha=self.alpha)

    def resolved(self, records: Population | Predictions, rows: list[Row]) -> Row:
        mechanism = self.mechanism
        rank = self._rank(mechanism)
        return {
            "labels": records.probs.shape[1] if isinstance(records, Population) else None,
            "bound": None if isinstance(records, Population) else records.bound,
            "channel": self.variant,
            "exact_epsilon": mechanism.privacy.epsilon_at(self.privacy_delta or 0.5),
            "kind": self.terms.guarantee,
            "certificate": mechanism.certificate,
            "adjacency": REPLACE_ONE,
            "rank": rank,
            "inflation_ranks": mechanism.inflation(n=self.n, rank=rank),
        }


class _Prepared(NamedTuple):
    """The mechanism, and the scores of records; those of the truth are `own`."""

    mechanism: Mechanism
    scored: Scored
    own: NDArray[Any]
