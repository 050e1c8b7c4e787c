"""Records in arrays: what a model returned and what was observed, as a score reads them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.base import MULTI_LABEL, OWN_LOSS, REGRESSION, Score
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.probabilities import check_probabilities
from confide.protocol.scores.registry import find_score
from confide.protocol.scores.risk import risk
from confide.protocol.tensors import as_array

Array = NDArray[Any]


@dataclass(frozen=True)
class ArrayRecords:
    """What a model returned, what was observed, and uniform numbers for randomised scores."""

    score: Score
    results: Array
    truth: Array
    u: Array | None = None

    @property
    def labels(self) -> int:
        """The number of labels; 0 for numbers and losses."""
        return 0 if self.score.task in (REGRESSION, OWN_LOSS) else int(self.results.shape[1])

    def taken(self, rows: NDArray[np.int64], *, u: Array) -> "ArrayRecords":
        """The records of these rows, with a uniform number each."""
        own = u if self.score.randomized else None
        return ArrayRecords(self.score, self.results[rows], self.truth[rows], own)

    @property
    def own(self) -> Array:
        return self.score.true_scores(self.results, self.truth, u=self.u)

    @property
    def every(self) -> Array:
        return LabelScore.of(self.score).all_scores(self.results, u=self.u)


def read_records(results: Any, truth: Any, score: str) -> ArrayRecords:
    """Arrays as the score reads them."""
    observed, chosen = as_array(truth), find_score(score)
    # Losses of one's own come without results of a model.
    found = np.empty((len(observed), 0)) if results is None else as_array(results)
    if chosen.task in (MULTI_LABEL, OWN_LOSS):
        found, observed = risk(chosen).checked(found, observed)
    elif chosen.task != REGRESSION:
        found = check_probabilities(found).astype(np.float32, copy=False)
    if len(found) != len(observed):
        raise BadInput(f"{len(found)} results with {len(observed)} truths; accepted is one each")
    return ArrayRecords(chosen, found, observed)


def draw_order(n: int, seed: int | None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The order in which records are asked, and a uniform number each in this order.

    Users are asked in the order of their positions, which must not depend on their records.
    """
    rng = np.random.default_rng(seed)
    return rng.permutation(n), rng.random(n)
