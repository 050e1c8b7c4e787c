"""Records in arrays: what a model returned and what was observed, as a score reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.methods.partition import NO_PART, numbers, spelled
from confide.protocol.scores.base import Score
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.registry import find_score
from confide.protocol.scores.risk import risk
from confide.protocol.tensors import as_array

Array = NDArray[Any]


@dataclass(frozen=True)
class ArrayRecords:
    """What a model returned, what was observed, and uniform numbers for randomised scores.

    `groups` holds the public group of every record, as plans name them, if records are grouped.
    """

    score: Score
    results: Array
    truth: Array
    u: Array | None = None
    groups: Array | None = None

    @property
    def labels(self) -> int:
        """The number of labels; 0 for numbers and losses."""
        return int(self.results.shape[1]) if self.score.task.of_labels else 0

    def taken(self, rows: NDArray[np.int64], *, u: Array) -> "ArrayRecords":
        """The records of these rows, with a uniform number each."""
        own = u if self.score.randomized else None
        groups = None if self.groups is None else self.groups[rows]
        return ArrayRecords(self.score, self.results[rows], self.truth[rows], own, groups)

    def in_groups(self, names: tuple[str, ...]) -> "ArrayRecords":
        """The records whose group is one of these; others take no part."""
        if self.groups is None:
            raise BadInput("a campaign by group without groups; accepted is one for every record")
        rows = np.flatnonzero(numbers(self.groups, names) != NO_PART)
        drawn = np.zeros(len(self.truth)) if self.u is None else self.u
        return self.taken(rows, u=drawn[rows])

    @property
    def counted(self) -> tuple[Array, Array, Array | None]:
        """What an owner that counts its records knows about them."""
        return self.own, self.truth, self.groups

    @property
    def own(self) -> Array:
        return self.score.true_scores(self.results, self.truth, u=self.u)

    @property
    def every(self) -> Array:
        return LabelScore.of(self.score).all_scores(self.results, u=self.u)


def read_records(results: Any, truth: Any, score: str, *, groups: Any = None) -> ArrayRecords:
    """Arrays as the score reads them; `groups` may hold the public group of every record."""
    observed, chosen = as_array(truth), find_score(score)
    # Losses of one's own come without results of a model.
    found = np.empty((len(observed), 0)) if results is None else as_array(results)
    if chosen.task.of_risk:
        found, observed = risk(chosen).checked(found, observed)
    found = chosen.task.checked(found)
    if len(found) != len(observed):
        raise BadInput(f"{len(found)} results with {len(observed)} truths; accepted is one each")
    if groups is None:
        return ArrayRecords(chosen, found, observed)
    named = spelled(as_array(groups).tolist())
    if len(named) != len(observed):
        raise BadInput(f"{len(named)} groups with {len(observed)} truths; accepted is one each")
    return ArrayRecords(chosen, found, observed, groups=named)


def with_groups(records: ArrayRecords, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with the groups that occur among all records if none are named."""
    if records.groups is None:
        return dict(settings)
    named = {"group_column": "group", "groups": np.unique(records.groups).tolist()}
    return named | dict(settings)


def draw_order(n: int, seed: int | None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The order in which records are asked, and a uniform number each in this order.

    Users are asked in the order of their positions, which must not depend on their records.
    """
    rng = np.random.default_rng(seed)
    return rng.permutation(n), rng.random(n)
