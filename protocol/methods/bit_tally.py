"""The tally of a query for bits: answers and ones at every threshold, for all and by part."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from confide.protocol.errors import BadInput
from confide.protocol.methods.base import Query
from confide.protocol.methods.parts import PartBits, PartedTally


@dataclass(frozen=True)
class BitTally(PartedTally):
    """For every threshold of a query: the number of answers, and how many of them were one.

    `parts` holds the same by owner or group, and adds up to the whole, or is empty.
    """

    answers: tuple[int, ...]
    ones: tuple[int, ...]
    parts: Mapping[bytes, PartBits] = field(default_factory=dict, hash=False)

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
        return {"answers": self.answers, "ones": self.ones, "parts": parts}
