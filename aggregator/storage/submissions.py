"""Batches and refusals that are submitted to the writer, and the results of storing them."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Campaign, round and owner.
Key = tuple[str, int, int]


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
    """Batches of one owner for one round, stored together or not at all.

    `finished` says that no more will come. `most` is how many reports, and how many batches, the
    round takes from the owner; `in_all` is how many reports the campaign takes, and `most_bytes`
    how many bytes of answers. An owner asked as a `whole` answers a round once: anything more that
    it sends adds nothing.
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


class SentSoFar(NamedTuple):
    """An owner's batches and reports in a round, and its reports and bytes in the campaign."""

    batches: int
    reports: int
    in_all: int
    bytes: int

    def plus(self, more: Sequence[Packed]) -> "SentSoFar":
        reports = sum(batch.reports for batch in more)
        return SentSoFar(
            self.batches + len(more),
            self.reports + reports,
            self.in_all + reports,
            self.bytes + sum(len(batch.answer) for batch in more),
        )

    def within(self, submission: Submission) -> bool:
        most = max(self.batches, self.reports) <= submission.most
        return most and self.in_all <= submission.in_all and self.bytes <= submission.most_bytes


class Stored(NamedTuple):
    """The result of storing a submission: a wire code, and counts of its reports.

    `accepted` reports count from now on, and `duplicates` counted before.
    """

    code: int
    accepted: int = 0
    duplicates: int = 0


class Rejection(NamedTuple):
    """A refusal, of which nothing is stored but how many times it happened."""

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
