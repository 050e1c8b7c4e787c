"""What is handed in to be stored, and what became of it."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Campaign, round and owner.
Key = tuple[str, int, int]


class Packed(NamedTuple):
    """One batch as it is stored; its reports' ids, 16 bytes each, unless its owner answers as a
    whole."""

    digest: bytes
    reports: int
    answer: bytes
    ids: bytes | memoryview = b""


@dataclass(frozen=True)
class Parcel:
    """Batches of one owner for one round, stored together or not at all; `finished` when no more
    will come.

    `most` is how many reports, and how many batches, the round takes of the owner, `in_all` how
    many reports the campaign, and `most_bytes` how many bytes of answers. Asked as a `whole`, an
    owner answers a round once: what else it sends adds nothing.
    """

    campaign: str
    round: int
    owner: int
    batches: Sequence[Packed] = ()
    seeded: bool = False
    finished: bool = False
    code: str | None = None
    most: int = sys.maxsize
    in_all: int = sys.maxsize
    whole: bool = False
    most_bytes: int = sys.maxsize

    @property
    def key(self) -> Key:
        return self.campaign, self.round, self.owner


class Stored(NamedTuple):
    """What became of a parcel: a wire code, and of its reports how many count from now on, and how
    many did before."""

    code: int
    accepted: int = 0
    duplicates: int = 0


class Rejection(NamedTuple):
    """Something that was refused: counted, and nothing else."""

    campaign: str
    owner: str
    code: str
    times: int = 1


def summed(items: Iterable[Parcel | Rejection]) -> list[Rejection]:
    """The rejections, one of a kind, in one order everywhere, as above."""
    times: Counter[tuple[str, str, str]] = Counter()
    for item in items:
        if isinstance(item, Rejection):
            times[item[:3]] += item.times
    return [Rejection(*kind, count) for kind, count in sorted(times.items())]
