"""The parts of the records that a tally keeps apart: owners, or groups that the plan names.

A query says by its division which part every report belongs to. The tally then answers for all
records together and, by `keys` and `of`, for each part on its own.
"""

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.methods.base import Batch, Query, Tally
from confide.protocol.methods.partition import Divided
from confide.protocol.wire.columns import Array

# The most parts that a tally keeps apart. With more of them a part has no certificate of its own,
# and one number for each would be larger than what it is counted from.
MOST_PARTS = 1_000


class PartedTally(Tally):
    """A tally that also answers for each part on its own."""

    @property
    @abstractmethod
    def keys(self) -> tuple[bytes, ...]:
        """The parts that answered, in an order that does not depend on when they did."""

    @abstractmethod
    def of(self, key: bytes) -> Self:
        """The tally of a part; that of a part that did not answer is empty."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of reports."""

    @property
    def of_nobody(self) -> bool:
        """Whether reports came and no part of them is known, as where there are too many owners."""
        return self.size > 0 and not self.keys

    @abstractmethod
    def lower_bound(self, query: Query, threshold: float, *, delta: float) -> float | None:
        """What coverage at a threshold is at least, but with probability delta; None: unknown."""


def kept_apart(tally: Tally) -> PartedTally | None:
    """The tally, if it keeps parts apart and any came."""
    return tally if isinstance(tally, PartedTally) and tally.keys else None


@dataclass(frozen=True)
class PartBits:
    """The answers of a part: how many, and how many were one, by the place of the threshold.

    Thresholds without an answer are left out.
    """

    answers: Mapping[int, int]
    ones: Mapping[int, int]

    def dense(self, thresholds: int) -> dict[str, Any]:
        """The answers and the ones at every threshold, as fields of a tally of one part."""
        places = range(thresholds)
        return {
            "answers": tuple(self.answers.get(place, 0) for place in places),
            "ones": tuple(self.ones.get(place, 0) for place in places),
            "parts": {},
            "senders": {},
        }

    def to_json(self) -> list[list[int]]:
        return [[place, n, self.ones.get(place, 0)] for place, n in sorted(self.answers.items())]

    @classmethod
    def from_json(cls, values: Iterable[Iterable[int]]) -> "PartBits":
        rows = [tuple(row) for row in values]
        return cls({q: n for q, n, _ in rows}, {q: ones for q, _, ones in rows if ones})


@dataclass(frozen=True)
class BitTally(PartedTally):
    """For every threshold of a query: the number of answers, and how many of them were one.

    `parts` holds the same by owner or group, and adds up to the whole, or is empty.
    """

    answers: tuple[int, ...]
    ones: tuple[int, ...]
    parts: Mapping[bytes, PartBits] = field(default_factory=dict, hash=False)
    senders: Mapping[bytes, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if len(self.answers) != len(self.ones) or not all(
            0 <= k <= n for k, n in zip(self.ones, self.answers, strict=True)
        ):
            raise BadInput(
                f"tally of {self.answers} answers with {self.ones} ones; ones must lie between 0 "
                "and the answers"
            )
        for name, whole in (("answers", self.answers), ("ones", self.ones)):
            of_parts = Counter[int]()
            for one in self.parts.values():
                of_parts.update(getattr(one, name))
            if self.parts and of_parts != Counter({q: n for q, n in enumerate(whole) if n}):
                raise BadInput(f"{name} of parts do not add up; accepted is {whole} in all")

    @property
    def keys(self) -> tuple[bytes, ...]:
        return tuple(sorted(self.parts))

    def of(self, key: bytes) -> Self:
        return replace(self, **self.parts.get(key, PartBits({}, {})).dense(len(self.answers)))

    @property
    def size(self) -> int:
        return sum(self.answers)

    def lower_bound(self, query: Query, threshold: float, *, delta: float) -> float | None:
        """Clopper and Pearson's bound, through the channel, of the answers at this threshold."""
        found = [one for one in query.evidence(self) if one.threshold == threshold and one.answers]
        if not found:
            return None
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if found[0].above(middle) <= delta else (low, middle)
        return low

    def crowd(self) -> int:
        return sum(self.answers)

    def to_json(self) -> Any:
        parts = {key.hex(): self.parts[key].to_json() for key in self.keys}
        senders = {key.hex(): self.senders[key] for key in sorted(self.senders)}
        return {"answers": self.answers, "ones": self.ones, "parts": parts, "senders": senders}


def senders_of(batches: Iterable[Batch]) -> dict[bytes, int]:
    """The reports of every owner; nothing if there are more than a tally keeps apart."""
    found = Counter[bytes]()
    for batch in batches:
        found[batch.sender] += len(batch)
    return dict(+found) if len(found) <= MOST_PARTS else {}


class PartCounter:
    """Counts bits by part and threshold, until there are more parts than a tally keeps apart."""

    def __init__(self) -> None:
        self._answers: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
        self._ones: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
        self._many = False

    def add(self, divided: Divided, asked: Array, bits: Array) -> None:
        """Count reports, whose thresholds are given by place."""
        if self._many or not len(asked):
            return
        width = int(asked.max()) + 1
        codes = (divided.places * width + asked) * 2 + bits
        found, counts = np.unique(codes, return_counts=True)
        for code, count in zip(found.tolist(), counts.tolist(), strict=True):
            part, place, one = code // (2 * width), code // 2 % width, code % 2
            key = divided.keys[part]
            self._answers[key][place] += count
            self._ones[key][place] += count * one
        self._many = len(self._answers) > MOST_PARTS

    def parts(self) -> dict[bytes, PartBits]:
        """What every part answered; nothing if there are too many parts."""
        if self._many:
            return {}
        return {key: PartBits(found, +self._ones[key]) for key, found in self._answers.items()}


def joined(divided: Iterable[Divided]) -> Divided:
    """One list of parts for the reports of several batches; no parts if there are too many."""
    known: dict[bytes, int] = {}
    places: list[NDArray[np.int64]] = []
    for keys, own in divided:
        among = np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)
        places.append(among[own] if len(own) else own)
    every = np.concatenate([np.empty(0, dtype=np.int64), *places])
    if len(known) > MOST_PARTS:
        return Divided((), np.zeros(len(every), dtype=np.int64))
    return Divided(tuple(known), every)
