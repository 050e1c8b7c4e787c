"""Scores that bound a risk: their coverage is one minus the expected loss.

For a loss l(q) in [0, 1] and a uniform number U of the record, S = inf{q : l(p) <= U for all
p >= q} has P(S <= q) = 1 - sup over p >= q of l(p). If the loss does not increase with q, that is
1 - l(q); else it is less. So whatever certifies coverage of at least 1 - alpha at q, certifies an
expected loss of at most alpha (risk-controlling prediction sets, Bates et al. 2021).
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.base import (
    Array,
    Score,
    SetScore,
    UnlabelledScore,
    check_constants,
)
from confide.protocol.scores.probabilities import check_uniforms
from confide.protocol.scores.task import MULTI_LABEL, OWN_LOSS, Task

# The most values of a user's own parameter.
MOST_VALUES = 1000


class RiskScore(Score):
    """A score whose coverage is one minus an expected loss; randomised by one number a record."""

    randomized = True
    # The loss in words, for promises.
    loss_name: ClassVar[str]

    def true_scores(self, results: ArrayLike, truth: ArrayLike, *, u: ArrayLike | None) -> Array:
        found, observed = self.checked(results, truth)
        uniforms = check_uniforms(u, len(observed))
        if uniforms is None:
            raise BadInput(f"score {self.name} needs u, a uniform number a record; none is given")
        return self.owned_scores(found, observed, u=uniforms)

    def checked(self, results: ArrayLike, truth: ArrayLike) -> tuple[Array, Array]:
        """Return results and truth if they are what the score reads; refuse others."""
        found, observed = np.asarray(results), np.asarray(truth)
        if found.ndim != 2 or observed.ndim != 2 or len(found) != len(observed):
            raise BadInput(
                f"results have shape {found.shape} and truths {observed.shape}; accepted are "
                f"{self.reads}"
            )
        return found, observed

    @abstractmethod
    def losses(self, results: Array, truth: Array, threshold: ArrayLike) -> NDArray[np.float64]:
        """Return the loss of every record at a threshold."""

    reads: ClassVar[str]


@dataclass(frozen=True)
class FalseNegatives(SetScore, RiskScore):
    """The share of a record's true labels that its set {y : 1 - p_y <= q} misses.

    A model returns one probability a label, which need not sum to 1. Of m true labels the score is
    the ceil((1 - U) m)-th smallest 1 - p_y; a record without a true label misses nothing.
    """

    name = "false-negatives"
    task: ClassVar[Task] = MULTI_LABEL
    loss_name: ClassVar[str] = "the share of a record's true labels that its set misses"
    reads: ClassVar[str] = "a probability and a truth (0 or 1) for each label, a row a record"

    @property
    def constants(self) -> Mapping[str, float]:
        return {}

    def with_constants(self, given: Mapping[str, float]) -> Self:
        check_constants(self.name, given, {})
        return self

    def meaning(self, labels: int) -> str:
        return (
            f"sets of {labels} labels, of which a record may have several.\nIts answer is drawn "
            "from the share of its true labels that a threshold would miss."
        )

    def checked(self, results: ArrayLike, truth: ArrayLike) -> tuple[Array, Array]:
        found, observed = super().checked(results, truth)
        found = self.task.checked(found)
        if observed.shape != found.shape or not np.isin(observed, (0, 1)).all():
            raise BadInput(
                f"truths have shape {observed.shape} for {found.shape} results; accepted is "
                f"{self.reads}"
            )
        return found, observed.astype(np.bool_)

    def owned_scores(self, results: Array, truth: Array, *, u: Array | None) -> Array:
        """Labels that are not in the plan are never in a set: they score 1."""
        assert u is not None
        n, width = len(truth), max(truth.shape[1], results.shape[1])
        scores = np.ones((n, width), dtype=np.float32)
        scores[:, : results.shape[1]] = self.all_scores(results)
        wanted = np.zeros((n, width), dtype=np.bool_)
        wanted[:, : truth.shape[1]] = truth
        # Labels that are not true come last, and are never reached.
        ordered = np.sort(np.where(wanted, scores, np.float32(2)), axis=1)
        count = wanted.sum(axis=1)
        # Rounded up, so that rounding never makes a score too small.
        needed = np.ceil(np.nextafter((1 - u) * count, np.inf)).astype(np.int64)
        needed = np.minimum(needed, count)
        chosen = ordered[np.arange(n), np.maximum(needed - 1, 0)]
        return np.where(needed > 0, chosen, np.float32(0))

    def all_scores(self, results: ArrayLike, *, u: ArrayLike | None = None) -> Array:
        """The scores 1 - p of labels, in single precision; of what is no number, 1."""
        found = np.nan_to_num(np.asarray(results, dtype=np.float32), nan=0.0)
        return np.clip(np.float32(1) - found, 0, 1)

    def within(
        self, results: ArrayLike, threshold: ArrayLike, *, u: ArrayLike | None = None
    ) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = self.all_scores(results) <= np.asarray(threshold)
        return inside

    def losses(self, results: Array, truth: Array, threshold: ArrayLike) -> NDArray[np.float64]:
        """The loss of every record at a threshold, or each at its own."""
        wanted = truth.astype(np.bool_)
        limits = threshold if np.ndim(threshold) == 0 else np.asarray(threshold)[:, None]
        missed = (wanted & (self.all_scores(results) > limits)).sum(axis=1)
        return missed / np.maximum(wanted.sum(axis=1), 1)


@dataclass(frozen=True)
class OwnLoss(UnlabelledScore, RiskScore):
    """A loss of one's own, in [0, 1], at the values 1/m, 2/m, ..., 1 of a parameter q.

    Each record brings its losses: there is no model. A loss that rises with q counts at q as the
    largest from q on. At q = 1 every loss is accepted: threshold 1 promises nothing.
    """

    values: int

    name = "own-loss"
    task: ClassVar[Task] = OWN_LOSS
    needs: ClassVar[str] = " values=N"
    loss_name: ClassVar[str] = "the loss that owners brought"
    reads: ClassVar[str] = "no result, and a loss in [0, 1] for each value, a row a record"

    @classmethod
    def of(cls, given: Mapping[str, float]) -> Self:
        """Make the score from its constants."""
        check_constants(cls.name, given, {"values": (2, MOST_VALUES)})
        if "values" not in given or given["values"] != int(given["values"]):
            raise BadInput(
                f"score {cls.name} needs the number of losses of a record; accepted is: "
                f"{cls.name} values=WHOLE_NUMBER"
            )
        return cls(int(given["values"]))

    @property
    def constants(self) -> Mapping[str, float]:
        return {"values": self.values}

    def meaning(self, labels: int) -> str:
        return (
            f"a parameter that keeps a loss of your own low, by its {self.values} losses in your "
            "file.\nThey stay here like a label."
        )

    def width(self, labels: int) -> int:
        return 0

    def owned_scores(self, results: Array, truth: Array, *, u: Array | None) -> Array:
        """Losses that are missing or no numbers in [0, 1] count as 1; further ones do not count."""
        assert u is not None
        losses = np.ones((len(truth), self.values))
        given = np.asarray(truth, dtype=np.float64)[:, : self.values]
        with np.errstate(invalid="ignore"):
            losses[:, : given.shape[1]] = np.where((given >= 0) & (given <= 1), given, 1.0)
        # The largest from each value on.
        worst = np.maximum.accumulate(losses[:, ::-1], axis=1)[:, ::-1]
        above = (worst > u[:, None]).sum(axis=1)
        return np.minimum(above + 1, self.values) / self.values

    def losses(self, results: Array, truth: Array, threshold: ArrayLike) -> NDArray[np.float64]:
        """The loss of every record at a threshold: that of the value at or below it, else 1.

        Each record may have its own.
        """
        at = np.arange(1, self.values + 1) / self.values
        places = np.broadcast_to(np.searchsorted(at, threshold, side="right") - 1, len(truth))
        found = np.asarray(truth, dtype=np.float64)[np.arange(len(truth)), np.maximum(places, 0)]
        return np.where(places >= 0, found, 1.0)


def risk(score: Score) -> RiskScore:
    """Return a score as one of a risk; refuse others."""
    return RiskScore.narrowed(score, accepted="one of a risk")
