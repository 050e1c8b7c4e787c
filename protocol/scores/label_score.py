"""Scores of labels: elementwise functions of a ranking of the labels by probability."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.protocol.scores.base import SetScore, check_constants
from confide.protocol.scores.membership import labels_within
from confide.protocol.scores.probabilities import (
    check_labels,
    check_shape,
    check_uniforms,
    chunks,
    tempered,
    working,
)
from confide.protocol.scores.ranking import Ranking, TrueRanking
from confide.protocol.scores.sorted_ranking import FullRanking
from confide.protocol.scores.task import CLASSIFICATION, Task

Array = NDArray[Any]

# Powers of probabilities are far from overflow within these.
TEMPERATURE = (0.05, 20.0)
# The limits of a constant whose score states none.
ANY = (-1e6, 1e6)


@dataclass(frozen=True)
class LabelScore(SetScore):
    """A score of labels.

    `randomized` says whether it uses the ranking's uniform number `u`; only then do owners draw
    one. `parameters` are the keyword arguments the function is called with, and `limits` the values
    that a plan may give them. Probabilities are raised to the power 1/`temperature` first, and
    divided by their sum (temperature scaling, Guo et al. 2017).
    """

    name: str
    function: Callable[..., Array]
    randomized: bool = False
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    temperature: float = 1.0

    task: ClassVar[Task] = CLASSIFICATION

    @property
    def constants(self) -> Mapping[str, float]:
        """The parameters, and the temperature unless it is 1, which changes nothing."""
        tempered = {} if self.temperature == 1 else {"temperature": self.temperature}
        return {**self.parameters, **tempered}

    def with_constants(self, given: Mapping[str, float]) -> Self:
        if not given:
            return self
        limits = {name: self.limits.get(name, ANY) for name in self.parameters}
        check_constants(self.name, given, limits | {"temperature": TEMPERATURE})
        own = {name: given.get(name, value) for name, value in self.parameters.items()}
        return replace(
            self, parameters=own, temperature=float(given.get("temperature", self.temperature))
        )

    def meaning(self, labels: int) -> str:
        return f"{labels} labels."

    def true_scores(
        self, results: ArrayLike, truth: ArrayLike, *, u: ArrayLike | None = None
    ) -> Array:
        """Score the given labels without sorting, equal to `all_scores` to the bit."""
        probs = check_shape(results)
        labels = check_labels(truth, n=len(probs), k=probs.shape[1])
        uniforms = check_uniforms(u, len(probs))
        ranking = TrueRanking(tempered(probs, self.temperature), uniforms, labels)
        return np.clip(self(ranking), 0, 1).astype(working(probs.dtype), copy=False)

    def all_scores(self, results: ArrayLike, *, u: ArrayLike | None = None) -> Array:
        probs = check_shape(results)
        uniforms = check_uniforms(u, len(probs))
        out = np.empty(probs.shape, dtype=working(probs.dtype))
        for rows in chunks(probs):
            part = tempered(probs[rows], self.temperature).astype(out.dtype, copy=False)
            out[rows] = np.clip(
                self(FullRanking(part, None if uniforms is None else uniforms[rows])), 0, 1
            )
        return out

    def within(
        self, results: ArrayLike, threshold: ArrayLike, *, u: ArrayLike | None = None
    ) -> NDArray[np.bool_]:
        return labels_within(self, results, threshold, u=u)

    def owned_scores(self, results: Array, truth: Array, *, u: Array | None) -> Array:
        """A label that is not in the plan is never covered: its score is 1."""
        scores = np.ones(len(truth))
        known = (truth >= 0) & (truth < results.shape[1])
        uniforms = None if u is None else u[known]
        scores[known] = self.true_scores(results[known], truth[known], u=uniforms)
        return scores

    def __call__(self, ranking: Ranking) -> Array:
        return self.function(ranking, **self.parameters)
