"""From a card, or a threshold, to prediction sets and intervals.

Numpy arrays and torch tensors are accepted; torch is not imported.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from confide.protocol.cards.card import Card
from confide.protocol.cards.trust import (
    Key,
    group_thresholds_of,
    threshold_of_band,
    thresholds_of,
    trusted_release,
)
from confide.protocol.errors import BadInput
from confide.protocol.methods.partition import spelled
from confide.protocol.prediction.batches import BatchModel, Progress, checked_model
from confide.protocol.prediction.explanation import (
    RecordExplanation,
    explain_intervals,
    explain_labels,
)
from confide.protocol.scores.base import Score, SetScore
from confide.protocol.scores.registry import find_score
from confide.protocol.scores.regression import residual
from confide.protocol.tensors import as_array, like

Array = NDArray[Any]


class CardWarning(UserWarning):
    """A card can be used, and does not promise what one expects of a card."""


@dataclass(frozen=True)
class Predictor:
    """Prediction sets C(x) = {y : S(x, y) <= threshold}, or intervals where y is a number.

    Without a model, the methods take what a model returned: probabilities of classes, or predicted
    numbers. With one they take features and run it. Results are converted to single precision, in
    which owners score and report them: a threshold may be a score that many records share (that of
    a rank, for example), and in another precision the same score could lie slightly above it.

    `label_count` is the number of labels that a card names, None for any; `remarks` are the
    limits of the card that the predictor was made from. With `class_thresholds` every label has its
    own, and the threshold is the largest of them. With `group_thresholds` every group has its own,
    by name: methods that are given the `groups` of records use these, else the largest of them.
    `certified` is the coverage that a band certifies at the threshold, if it was chosen in one.
    """

    score: Score
    threshold: float
    label_count: int | None = None
    model: BatchModel | None = None
    remarks: tuple[str, ...] = ()
    class_thresholds: tuple[float, ...] = ()
    group_thresholds: Mapping[str, float] = field(default_factory=dict, hash=False)
    certified: float | None = None

    def __post_init__(self) -> None:
        each = (self.threshold, *self.class_thresholds, *self.group_thresholds.values())
        if not all(0.0 <= q <= 1.0 for q in each):
            raise BadInput(f"threshold is {self.threshold!r}; it must lie in [0, 1]")
        if len(self.class_thresholds) not in (0, self.label_count):
            raise BadInput(
                f"{len(self.class_thresholds)} thresholds of classes; accepted is one for each of "
                f"the {self.label_count} labels"
            )

    @classmethod
    def from_card(
        cls,
        card: Card | Path | str,
        *,
        key: Key,
        model: BatchModel | Path | str | None = None,
        simulation: bool = False,
        part: str | None = None,
        coverage: float | None = None,
        threshold: float | None = None,
    ) -> Self:
        """Make the predictor of a card, after verifying every clause of it.

        `key` is the public key that must have signed the card, as 32 bytes or hexadecimal. A card
        that is not signed, or does not verify, is refused, and so is a model (an ONNX file, or
        what `confide.read_model` returns) that the card does not name. The card of a simulation is
        refused unless `simulation` accepts it. A trivial threshold, or a contract that was not
        kept, is a `CardWarning`. Where owners or groups have a threshold each, `part` names whose
        is used; without it the largest is, which covers each of them, unless methods are given the
        groups of records. Where the card has a band, `coverage` chooses the smallest threshold that
        it certifies for so much coverage, and `threshold` one for which `certified` says how much
        that is; what the band does not certify is refused.
        """
        released, remarks = trusted_release(card, key=key, simulation=simulation)
        named = bytes.fromhex(released["model"])
        chosen = None if model is None else checked_model(model, named)
        for remark in remarks:
            warnings.warn(remark, CardWarning, stacklevel=2)
        score, labels = find_score(released["score"]), released["labels"]
        found, by_class = thresholds_of(released, part)
        by_group = group_thresholds_of(released) if part is None else {}
        certified = None
        if coverage is not None or threshold is not None:
            found, certified = threshold_of_band(released, coverage=coverage, threshold=threshold)
        own: dict[str, Any] = {"class_thresholds": by_class, "group_thresholds": by_group}
        own["certified"] = certified
        return cls(score, found, labels or None, chosen, remarks, **own)

    @property
    def trivial(self) -> bool:
        """Whether the threshold is 1: sets hold every label, and intervals are the whole line."""
        each = self.class_thresholds or (*self.group_thresholds.values(),) or (self.threshold,)
        return min(each) >= 1.0

    @property
    def _limits(self) -> Any:
        """The threshold of every label, or the one of all."""
        return np.array(self.class_thresholds) if self.class_thresholds else self.threshold

    @property
    def of_labels(self) -> bool:
        """Whether it predicts sets of labels, not intervals of numbers."""
        return self.score.task.of_labels

    def predict_set(self, x: Any, *, u: Any = None, groups: Any = None) -> Any:
        """Return (n, K) booleans: the labels of every set.

        An array gives an array; a tensor gives a tensor on the same device. `u` holds the uniform
        number of each record, for randomised scores; without it they are drawn. `groups` holds the
        group of each record, as the card names them, where groups have a threshold each.
        """
        return like(x, self._mask(x, u, groups))

    def predict_labels(self, x: Any, *, u: Any = None, groups: Any = None) -> list[list[int]]:
        """Return the labels of every set, in order of their index."""
        return [np.flatnonzero(row).tolist() for row in self._mask(x, u, groups)]

    def predict_interval(self, x: Any, *, groups: Any = None) -> Any:
        """Return (n, 2) numbers, the ends of every interval; those of the whole line are infinite.

        An interval whose low end is above its high one is empty.
        """
        score, results = residual(self.score), self.results(x)
        found = np.empty((len(results), 2))
        for rows, own in self._grouped(groups, len(results)):
            ends = score.interval(results[rows], own.threshold)
            found[rows] = np.stack(ends, axis=1)
        return like(x, found)

    def sizes(self, x: Any, *, u: Any = None, groups: Any = None) -> Array:
        """Return the number of labels in every set, or the width of every interval."""
        if not self.of_labels:
            low, high = as_array(self.predict_interval(x, groups=groups)).T
            return np.maximum(high - low, 0.0)
        return self._mask(x, u, groups).sum(axis=1, dtype=np.int64)

    def explain(self, x: Any, *, u: Any = None, groups: Any = None) -> list[RecordExplanation]:
        """Say of every record why each label is in its set or not, or how its interval was made."""
        results = self.results(x)
        if groups is not None:
            uniforms = self._uniforms(len(results), u)
            found: dict[int, RecordExplanation] = {}
            for rows, own in self._grouped(groups, len(results)):
                some = None if uniforms is None else uniforms[rows]
                for row, one in zip(rows, own.explain(results[rows], u=some), strict=True):
                    found[int(row)] = replace(one, record=int(row))
            return [found[row] for row in range(len(results))]
        if not self.of_labels:
            return explain_intervals(residual(self.score), results, threshold=self.threshold)
        scores = SetScore.of(self.score).all_scores(results, u=self._uniforms(len(results), u))
        return explain_labels(self.score, scores, threshold=self._limits)

    def results(self, x: Any, *, progress: Progress | None = None) -> Array:
        """Return what the model returns for these features; without a model, x itself, checked."""
        given, width = as_array(x), self._width
        found = given if self.model is None else self.model(given, width=width, progress=progress)
        if not self.of_labels:
            return found if self.model is None else found.astype(np.float64)
        found = self.score.task.checked(found)
        if width is not None and found.shape[1] != width:
            raise BadInput(
                f"probabilities have {found.shape[1]} columns; accepted is one for each of the "
                f"card's {width} labels"
            )
        return found

    @property
    def _width(self) -> int | None:
        if self.of_labels and self.label_count is None:
            return None
        return self.score.width(self.label_count or 0)

    def _mask(self, x: Any, u: Any, groups: Any = None) -> NDArray[np.bool_]:
        score, results = SetScore.of(self.score), self.results(x)
        uniforms = self._uniforms(len(results), u)
        found = np.empty(results.shape, dtype=np.bool_)
        for rows, own in self._grouped(groups, len(results)):
            some = None if uniforms is None else uniforms[rows]
            found[rows] = score.within(results[rows], own._limits, u=some)
        return found

    def _grouped(self, groups: Any, n: int) -> Iterator[tuple[Any, Self]]:
        """Yield rows of n records, and the predictor of their group, which takes results."""
        plain = replace(self, model=None, group_thresholds={})
        if groups is None:
            yield slice(None), plain
            return
        if not self.group_thresholds:
            raise BadInput("groups are given, and no group has a threshold of its own here")
        given = spelled(as_array(groups).tolist())
        if given.shape != (n,):
            raise BadInput(f"{len(given)} groups for {n} records; accepted is one each")
        unknown = sorted({*given.tolist()} - {*self.group_thresholds})
        if unknown:
            raise BadInput(
                f"groups hold {', '.join(unknown)[:200]}; accepted are those of the card: "
                f"{', '.join(self.group_thresholds)[:500]}"
            )
        for name in np.unique(given).tolist():
            threshold = self.group_thresholds[name]
            yield np.flatnonzero(given == name), replace(plain, threshold=threshold)

    def _uniforms(self, n: int, u: Any) -> Array | None:
        if u is not None:
            return as_array(u)
        return np.random.default_rng().random(n) if self.score.randomized else None
