"""The batches of a stored round, as a sequence that is read again each time."""

from collections.abc import Iterator, Sequence
from typing import overload

from confide.aggregator.campaigns.admission import Sent, read_answer
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import Campaign
from confide.protocol.methods.base import Batch, Query


class StoredBatches(Sequence[Batch]):
    """The batches of a round, read from the store each time that they are gone through.

    Answers as a whole may be long, so that of these one at a time is in memory.
    """

    def __init__(self, store: Store, campaign: Campaign, query: Query, *, number: int) -> None:
        self._store, self._campaign, self._query, self._number = store, campaign, query, number

    def __iter__(self) -> Iterator[Batch]:
        at_once = 1 if self._query.whole else 256
        for owner, answer in self._store.answers(self._campaign.id, self._number, at_once=at_once):
            sent = Sent(owner.to_bytes(8, "big"), answer)
            yield read_answer(
                sent, query=self._query, plan=self._campaign.digest, round_=self._number
            )

    def __len__(self) -> int:
        return self._store.batches(self._campaign.id, self._number)

    @overload
    def __getitem__(self, place: int) -> Batch: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Batch]: ...
    def __getitem__(self, place: int | slice) -> Batch | Sequence[Batch]:
        return list(self)[place]
