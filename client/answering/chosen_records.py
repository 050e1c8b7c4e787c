"""The records that answer one query, as the method sees them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.records.records import Records
from confide.protocol.exact.sampling import Entropy
from confide.protocol.plan import Plan
from confide.protocol.scores.registry import find_score
from confide.protocol.wire.columns import Array


@dataclass(frozen=True)
class ChosenRecords:
    """Some records of an owner (`confide.protocol.methods.subjects.Subjects`).

    `results` holds the model's results for all records, if the plan uses a model: probabilities,
    predicted numbers, or the inputs of a head that is trained. `units` gives each record at these
    places a uniform number that only the owner can predict; `trainer`
    (`confide.client.training.local_round.Trainer`) is there if the method trains a network.
    """

    records: Records
    results: Array | None
    plan: Plan
    places: Array
    positions: NDArray[np.float64]
    entropy: Entropy
    units: Callable[[Array], NDArray[np.float64]]
    trainer: Any = None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def labels(self) -> Array:
        return self.records.truth[self.places]

    def probabilities(self) -> Array:
        assert self.results is not None
        found: Array = self.results[self.places]
        return found

    def features(self) -> Array:
        """Return all numbers of each record; one that float32 cannot hold becomes its largest."""
        assert self.records.features is not None
        chosen = self.records.features[self.places].reshape(len(self), -1)
        largest = np.finfo(np.float32).max
        return np.clip(chosen.astype(np.float64), -largest, largest).astype(np.float32)

    def scores(self) -> Array:
        """Return the scores, which depend on the record, the plan and the owner's secret only."""
        score = find_score(self.plan.score)
        u = self.units(self.places) if score.randomized else None
        return score.owned_scores(self.probabilities(), self.labels, u=u)

    def public(self, column: str) -> NDArray[np.str_]:
        """Return the values of a column that the policy lets out."""
        return self.records.public[column][self.places]

    def train(self, weights: Array) -> Array:
        """Return the weights after this owner's private steps of DP-SGD."""
        found: Array = self.trainer.learn(
            weights, self._inputs(), self.labels, entropy=self.entropy
        )
        return found

    def noised_errors(self, weights: Array) -> int:
        """Return the noised number of records that a network of these weights predicts wrongly."""
        found: int = self.trainer.noised_errors(
            weights, self._inputs(), self.labels, entropy=self.entropy
        )
        return found

    def _inputs(self) -> Array:
        """Return what the network sees of each record: its features, or a head's inputs."""
        features = self.results if self.plan.terms.uses_model else self.records.features
        assert features is not None
        found: Array = features[self.places]
        return found
