"""The size curve that advice rests on: coverage and mean set size at every threshold of a score."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from confide.protocol.simulated.embedded import predictions
from confide.simulation.arrays.records import read_records
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

    def size(self, q: Floats) -> Floats:
        """The mean number of labels; a threshold of 1 or more has all of them."""
        inside = np.searchsorted(self._flat, q, side="right") / len(self)
        return np.where(np.asarray(q) >= 1, float(self.k), inside)

    def threshold(self, coverage: Floats) -> Floats:
        """The lowest threshold of at least this coverage."""
        rank = np.ceil(np.asarray(coverage) * len(self) - 1e-9).astype(np.int64) - 1
        return np.asarray(self.own[np.clip(rank, 0, len(self) - 1)])


def curve_of(population: Predictions, score: str) -> SizeCurve:
    """Score a population as owners do, in their precision.

    Beyond it, near a score of 1, thresholds would tell labels apart that are ties in campaigns. A
    randomised score gets its numbers from a fixed seed.
    """
    records = read_records(population.results, population.truth, score)
    u = np.random.default_rng(0).random(len(population))
    return SizeCurve(score, records.taken(np.arange(len(u)), u=u).every, records.truth)


def assumed(classes: int | None) -> Predictions:
    """The records that stand in for the user's own: the embedded ones, or made up of `classes`."""
    if classes is None:
        return Predictions("letter (embedded)", *predictions())
    made = softmax_records(ASSUMED_RECORDS, np.random.default_rng(0), labels=classes)
    return Predictions(f"made-up calibrated model, logits of spread {SPREAD:g}", *made)
