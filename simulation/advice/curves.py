"""The size curve that advice rests on: coverage and mean set size at every threshold of a score."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from confide.protocol.scores.registry import find_label_score
from confide.protocol.scores.scoring import all_scores
from confide.protocol.simulated.embedded import predictions
from confide.simulation.data.population import Predictions
from confide.simulation.data.synthetic import SPREAD, softmax_records

Floats = NDArray[np.float64]

# Records of the made-up model that stands in where no file is given.
ASSUMED_RECORDS = 8_000
# Logits beyond this are no thresholds of any procedure.
_FURTHEST = 36.0


@dataclass(frozen=True, eq=False)
class SizeCurve:
    """Coverage and mean set size of records under one score, as functions of the threshold."""

    score: str
    every: NDArray[Any]
    labels: NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def k(self) -> int:
        """The number of labels."""
        return int(self.every.shape[1])

    @cached_property
    def own(self) -> Floats:
        """The scores of the true labels, ascending."""
        return np.sort(self.every[np.arange(len(self)), self.labels].astype(np.float64))

    @cached_property
    def _flat(self) -> Floats:
        return np.sort(self.every, axis=None).astype(np.float64)

    @cached_property
    def logits(self) -> Floats:
        """The logits of the true labels' scores, ascending."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.clip(logit(self.own), -_FURTHEST, _FURTHEST))

    def coverage(self, q: Floats) -> Floats:
        return np.asarray(np.searchsorted(self.own, q, side="right") / len(self))

    def coverage_at(self, u: Floats) -> Floats:
        """Coverage at thresholds that are given as logits."""
        return np.asarray(np.searchsorted(self.logits, u, side="right") / len(self))

    def size(self, q: Floats) -> Floats:
        """The mean number of labels; a threshold of 1 or more has all of them."""
        inside = np.searchsorted(self._flat, q, side="right") / len(self)
        return np.where(np.asarray(q) >= 1, float(self.k), inside)

    def threshold(self, coverage: Floats) -> Floats:
        """The lowest threshold of at least this coverage."""
        rank = np.ceil(np.asarray(coverage) * len(self) - 1e-9).astype(np.int64) - 1
        return np.asarray(self.own[np.clip(rank, 0, len(self) - 1)])


def curve_of(population: Predictions, score: str) -> SizeCurve:
    """Score a population; a randomised score gets its numbers from a fixed seed."""
    u = np.random.default_rng(0).random(len(population))
    every = all_scores(find_label_score(score), population.results, u=u)
    return SizeCurve(score, every, population.truth)


def assumed(classes: int | None) -> Predictions:
    """The records that stand in for the user's own: the embedded ones, or made up of `classes`."""
    if classes is None:
        return Predictions("letter (embedded)", *predictions())
    made = softmax_records(ASSUMED_RECORDS, np.random.default_rng(0), labels=classes)
    return Predictions(f"made-up calibrated model, logits of spread {SPREAD:g}", *made)
