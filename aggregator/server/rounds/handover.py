"""The reports of a shuffled round as its shuffler handed them over: whole or not at all, opened."""

from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from confide.aggregator.campaigns.driver import ShuffledRound, TooFewReports
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import Campaign
from confide.protocol.methods.base import Batch, Query
from confide.protocol.methods.sealed import SealedQuery
from confide.protocol.shuffling import Handover, handover_digest, open_handover
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import ID_BYTES, parse, serialise


class ShuffledReports:
    """What a shuffler has handed over of one round."""

    def __init__(self, store: Store, campaign: Campaign, number: int) -> None:
        assert campaign.plan.shuffling is not None
        self._store, self._campaign, self._number = store, campaign, number
        self._shuffling = campaign.plan.shuffling

    def complete(self, reports: int) -> bool:
        """Whether so many reports, which are stored, are all that the shuffler signed."""
        first = next(self._batches(), None)
        return first is not None and self._handover(first).reports == reports

    def opened(self, query: Query, key: X25519PrivateKey) -> list[Batch]:
        """Open the reports; keep what the shuffler signed, for the card.

        A round of which a part is missing, or that is not the one signed, is an error. Without any
        report the round was never handed over.
        """
        batches = list(self._batches())
        if not batches:
            return []
        sealed = SealedQuery.of(
            query,
            recipient=self._shuffling.recipient,
            plan=self._campaign.digest,
            round_=self._number,
        )
        ids, reports = _ordered(batches, sealed)
        handover = self._handover(batches[0])
        found = handover_digest(ids.tobytes(), reports.tobytes())
        if (len(ids), found) != (handover.reports, handover.digest):
            raise TooFewReports(
                f"of round {self._number} {len(ids)} reports are here and the shuffler signed "
                f"{handover.reports}; accepted are exactly those that it signed"
            )
        self._store.keep_handover(self._campaign.id, self._number, serialise(batches[0].handover))
        columns = sealed.opened(reports, key)
        count = len(next(iter(columns.values())))
        return [Batch(np.zeros((count, ID_BYTES), dtype=np.uint8), columns)]

    def _batches(self) -> Iterator[wire.ReportBatch]:
        for _, answer in self._store.answers(self._campaign.id, self._number):
            yield parse(wire.Answer, answer).batch

    def _handover(self, batch: wire.ReportBatch) -> Handover:
        return open_handover(batch.handover, key=self._shuffling.key)


def _ordered(batches: list[wire.ReportBatch], query: SealedQuery) -> tuple[Array, Array]:
    """The ids and the sealed reports of batches, in the order of the ids."""
    ids = np.concatenate(
        [np.frombuffer(batch.ids, dtype=np.uint8).reshape(-1, ID_BYTES) for batch in batches]
    )
    sealed = np.concatenate(
        [query.unpack(batch.body, len(batch.ids) // ID_BYTES)["sealed"] for batch in batches]
    )
    order = np.argsort(np.ascontiguousarray(ids).view(f"S{ID_BYTES}").ravel(), kind="stable")
    return ids[order], sealed[order]


def shuffled_rounds(store: Store, campaign: Campaign, opened: list[int]) -> list[ShuffledRound]:
    """Return every round that was handed over, given how many reports of each were counted."""
    shuffling = campaign.plan.shuffling
    if shuffling is None:
        return []
    found = []
    for number, count in enumerate(opened):
        data = store.signed_handover(campaign.id, number)
        if data is not None:
            signed = parse(wire.SignedHandover, data)
            handover = open_handover(signed, key=shuffling.key)
            found.append(ShuffledRound(handover, signed.signature, count))
    return found
