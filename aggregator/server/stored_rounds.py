"""Reads the tallies of a campaign's rounds from the store, to replay its procedure."""

import json
from collections.abc import Iterator

from confide.aggregator.campaigns.admission import Sent, read_answer
from confide.aggregator.campaigns.report_ids import counted_once
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import OPEN, Campaign, Round
from confide.protocol.errors import ConfideError
from confide.protocol.methods.base import Batch, Query, Tally
from confide.protocol.plan import read_query, write_query
from confide.protocol.scores.registry import SCORES
from confide.protocol.wire.columns import Array


class Unanswered(ConfideError):
    """The procedure asks a query that owners have not been asked yet."""

    def __init__(self, number: int, query: bytes) -> None:
        super().__init__(number)
        self.round, self.query = number, query


class OtherVersion(ConfideError):
    """A round was asked by a version of this program that asks a different query."""


class StoredRounds:
    """A source of tallies that counts each closed round once, and stores the result if it may."""

    def __init__(
        self, store: Store, campaign: Campaign, rounds: list[Round], *, now: float
    ) -> None:
        self._store, self._campaign, self._rounds, self._now = store, campaign, rounds, now
        self._score = SCORES[campaign.plan.score]

    def __call__(self, query: Query, number: int) -> Tally:
        asked = write_query(query, plan=self._campaign.digest, round_=number)
        if number >= len(self._rounds):
            expires = self._campaign.plan.expires.timestamp()
            if self._campaign.state == OPEN and self._now < expires:
                raise Unanswered(number, asked)
            # The campaign asks nobody any more, so the tally is empty.
            nobody: Tally = query.tally([], self._score)
            return nobody
        if self._rounds[number].query != asked:
            raise OtherVersion(
                f"round {number} was asked by another version of this program, which must finish "
                "the campaign"
            )
        return self._tally(query, number)

    def _tally(self, query: Query, number: int) -> Tally:
        """The stored tally of a round, or one counted from its batches.

        A tally that is small, and no more exact than the reports, is stored.
        """
        kept = self._rounds[number].tally
        if kept is not None:
            stored: Tally = query.tally_from_json(json.loads(kept))
            return stored
        found = list(self._answers(query, number))
        if not query.whole:
            earlier = [ids for before in range(number) for ids in self._ids(before)]
            found = counted_once(found, earlier)
        tally: Tally = query.tally(found, self._score)
        values = tally.to_json()
        if values is not None:
            self._store.keep_tally(self._campaign.id, number, json.dumps(values))
        return tally

    def _answers(self, query: Query, number: int) -> Iterator[Batch]:
        for owner, answer in self._store.answers(self._campaign.id, number):
            sent = Sent(owner.to_bytes(8, "big"), answer)
            yield read_answer(sent, query=query, plan=self._campaign.digest, round_=number)

    def _ids(self, number: int) -> Iterator[Array]:
        query, _ = read_query(
            self._rounds[number].query,
            plan=self._campaign.plan,
            plan_digest=self._campaign.digest,
        )
        for batch in self._answers(query, number):
            yield batch.ids
