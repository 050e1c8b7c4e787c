"""The owner's records in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.task import Task, task_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Records:
    """Names and truths, with results of a model computed beforehand or features to score.

    Truths are labels, whole numbers of any range, or targets, floats of any value; a row of
    booleans says which labels are true, and a row of floats holds losses, which need no results.
    Results of labels are probabilities; those of targets are numbers under the names in `columns`.
    `model` is the digest of the model behind the results where it is known; `persons` holds the
    person that each record belongs to. `public` holds the columns that the owner's policy lets out
    in clear, as plans name their values.
    """

    names: Sequence[bytes]
    results: Array | None
    truth: Array
    model: bytes | None = None
    features: Array | None = None
    persons: tuple[bytes, ...] | None = None
    columns: tuple[str, ...] = ()
    public: Mapping[str, NDArray[np.str_]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        kinds = "iuf" if self.truth.ndim == 1 else "bf" if self.truth.ndim == 2 else ""
        if self.truth.dtype.kind not in kinds:
            raise BadInput(
                f"truths have shape {self.truth.shape} and type {self.truth.dtype}; accepted is "
                "a label (integer), a target (float), flags of labels (boolean) or losses (float) "
                "a record"
            )
        if self.results is not None:
            self._check_results(self.results)
        n = len(self.truth)
        for what, rows in {
            "results": self.results,
            "features": self.features,
            "persons": self.persons,
            **{f"column {name!r}": values for name, values in self.public.items()},
        }.items():
            if rows is not None and len(rows) != n:
                raise BadInput(
                    f"{n} {self.task.truths} for {len(rows)} rows of {what}; accepted is one a row"
                )
        if len(self.names) != n or len(set(self.names)) != n:
            raise BadInput(
                f"{len(set(self.names))} different names for {n} records; each record needs its own"
            )

    def _check_results(self, results: Array) -> None:
        """Refuse results that are no probabilities of labels, or no named numbers of targets."""
        if self.task.of_labels:
            self.task.checked(results)
        elif results.ndim != 2 or results.shape[1] != len(self.columns):
            raise BadInput(
                f"results of targets have shape {results.shape} for the columns "
                f"{', '.join(self.columns) or '(none)'}; accepted is a number a record and column"
            )

    @property
    def task(self) -> Task:
        """What the truths are: labels, numbers, flags of labels, or losses."""
        return task_of(self.truth)

    def __len__(self) -> int:
        return len(self.truth)
