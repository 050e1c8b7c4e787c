"""Populations of records whose coverage is known at every threshold."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import all_scores
from tests.support.truth.bit_tallies import POPULATIONS as CURVES

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Population:
    """Records of finitely many kinds, so that coverage is a finite sum.

    A record is of kind j with probability `weights[j]`. It has the probabilities `probs[j]` on its
    labels in random order, which fall strictly where scores know of ranks; its true label is the
    one of rank r with probability `ranks[j, r]`.
    """

    weights: Floats
    probs: Floats
    ranks: Floats

    @property
    def labels(self) -> int:
        return self.probs.shape[1]

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
        """Draw probabilities and true labels of n records."""
        kind = rng.choice(len(self.weights), n, p=self.weights)
        order = rng.random((n, self.labels)).argsort(axis=1)
        probs = np.empty((n, self.labels))
        np.put_along_axis(probs, order, self.probs[kind], axis=1)
        rank = (self.ranks.cumsum(axis=1)[kind, :-1] <= rng.random((n, 1))).sum(axis=1)
        return probs, order[np.arange(n), rank]

    def coverage(self, score: str, threshold: float, dtype: Any = np.float64) -> float:
        """P(Y in C(X)) for the predictor's sets, made from probabilities of this precision.

        Randomised scores are linear in their number u, uniform on [0, 1], which is integrated out.
        """
        if SCORES[score].randomized:
            least, most = (
                all_scores(SCORES[score], self.probs, u=np.full(len(self.probs), u))
                for u in (0.0, 1.0)
            )
            inside = np.clip((threshold - least) / (most - least), 0, 1)
        else:
            inside = Predictor(SCORES[score], threshold).predict_set(self.probs.astype(dtype))
        return float(self.weights @ (self.ranks * inside).sum(axis=1))


def _falling(first: Floats, k: int) -> Floats:
    """Probabilities of k labels: the first as given, every further one 0.7 of the one before."""
    rest = 0.7 ** np.arange(k - 1)
    return np.column_stack([first, np.outer(1 - first, rest / rest.sum())])


def calibrated(least: float, most: float, k: int = 10) -> Population:
    """A calibrated model: the label of rank r is true with its own probability.

    The first label has a probability from least to most.
    """
    probs = _falling(np.linspace(least, most, 211), k)
    return Population(np.full(len(probs), 1 / len(probs)), probs, probs)


def hair_below(k: int = 10, covered: float = 0.8999) -> Population:
    """One kind of record, whose label is the first with probability 0.8999, else the last.

    Between their scores, coverage is slightly below 0.9 for every score: the hardest case for a
    guarantee of 0.9.
    """
    ranks = np.zeros((1, k))
    ranks[0, [0, -1]] = covered, 1 - covered
    return Population(np.ones(1), _falling(np.array([0.53]), k), ranks)


POPULATIONS = {
    "unsure": calibrated(0.37, 0.97),
    "confident": calibrated(0.9, 0.999),
    "hair below": hair_below(),
}

# Curves on which tests of coverage have gone wrong.
HARD_CURVES = ("plateau", "jump", "tied", "steep", "heavy tail", "mixture")


def of_curve(name: str, k: int = 4) -> Population:
    """Records whose true label has an HPS score with this coverage curve, on a fine grid.

    A record is of one kind for every step of the grid. The true label has the probability 1 - score
    and the others share the rest, so that labels in random order are covered alike.
    """
    near = expit(logit(0.6) + np.linspace(-0.02, 0.02, 201))
    tails = expit(np.linspace(-16, 15, 400))
    grid = np.unique(np.concatenate([np.linspace(0, 1, 501), near, tails, [0.37]]))
    weights = np.diff(CURVES[name](grid), prepend=0.0)
    grid, weights = grid[weights > 0], weights[weights > 0]
    rest = np.outer(grid, np.full(k - 1, 1 / (k - 1)))
    ranks = np.zeros((len(grid), k))
    ranks[:, 0] = 1
    return Population(weights / weights.sum(), np.column_stack([1 - grid, rest]), ranks)


HARD = {name: of_curve(name) for name in HARD_CURVES}
EVERY = POPULATIONS | HARD
