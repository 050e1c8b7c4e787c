"""Batches and refusals that are submitted to the writer, and the results of storing them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from confide.aggregator.campaigns.allowance import UNLIMITED, Allowance


class Key(NamedTuple):
    """An owner in a round of a campaign."""

    campaign: str
    round: int
    owner: int


class Packed(NamedTuple):
    """One batch as it is stored.

    `ids` are the ids of its reports, 16 bytes each; it is empty if the owner answers as a whole.
    """

    digest: bytes
    reports: int
    answer: bytes
    ids: bytes | memoryview = b""


@dataclass(frozen=True)
class Submission:
    """Batches of one owner for one round, in the order they came, stored in one transaction.

    They are stored until the first that goes beyond the owner's `limit`. `finished` says that no
    more will come. An owner asked as a `whole` answers a round once: anything more that it sends
    adds nothing.
    """

    campaign: str
    round: int
    owner: int
    batches: Sequence[Packed] = ()
    seeded: bool = False
    finished: bool = False
    code: str | None = None
    limit: Allowance = UNLIMITED
    whole: bool = False

    @property
    def key(self) -> Key:
        return Key(self.campaign, self.round, self.owner)


class Stored(NamedTuple):
    """The result of storing a submission: a wire code, and counts of its reports.

    `accepted` reports count from now on, and `duplicates` counted before. A code other than OK is
    that of the first batch refused; the counts are those of the batches before it.
    """

    code: int
    accepted: int = 0
    duplicates: int = 0


class Rejection(NamedTuple):
    """A refusal; only the number of times it happened is stored."""

    campaign: str
    owner: str
    code: str
    times: int = 1


def summed(items: Iterable[Submission | Rejection]) -> list[Rejection]:
    """Add up the rejections of each kind, in the order in which rows are written everywhere."""
    times: Counter[tuple[str, str, str]] = Counter()
    for item in items:
        if isinstance(item, Rejection):
            times[item[:3]] += item.times
    return [Rejection(*kind, count) for kind, count in sorted(times.items())]
