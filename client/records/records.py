"""The owner's records in memory."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.scores.probabilities import check_probabilities

Array = NDArray[Any]


@dataclass(frozen=True)
class Records:
    """Names and labels, with probabilities computed beforehand or features to score.

    Labels are whole numbers of any range. `model` is the digest of the model behind the
    probabilities where it is known; `persons` holds the person that each record belongs to.
    """

    names: tuple[bytes, ...]
    probs: Array | None
    labels: Array
    model: bytes | None = None
    features: Array | None = None
    persons: tuple[bytes, ...] | None = None

    def __post_init__(self) -> None:
        if self.probs is not None:
            check_probabilities(self.probs)
        if self.labels.ndim != 1 or self.labels.dtype.kind not in "iu":
            raise BadInput(
                f"labels have shape {self.labels.shape} and type {self.labels.dtype}; accepted is "
                "an integer a record"
            )
        n = len(self.labels)
        for what, rows in {
            "probabilities": self.probs,
            "features": self.features,
            "persons": self.persons,
        }.items():
            if rows is not None and len(rows) != n:
                raise BadInput(
                    f"{n} labels for {len(rows)} rows of {what}; accepted is a label a row"
                )
        if len(self.names) != n or len(set(self.names)) != n:
            raise BadInput(
                f"{len(set(self.names))} different names for {n} records; each record needs its own"
            )

    def __len__(self) -> int:
        return len(self.labels)
