"""Reads the tallies of a campaign's rounds from the store, to replay its procedure."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from confide.aggregator.campaigns.driver import RecordedTallies, Running
from confide.aggregator.campaigns.releases import Audited
from confide.aggregator.campaigns.report_ids import counted_once
from confide.aggregator.campaigns.report_scores import report_scores
from confide.aggregator.procedures.counts.central import Draw
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.server.rounds.handover import ShuffledReports
from confide.aggregator.server.rounds.stored_batches import StoredBatches
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import OPEN, Campaign, Round
from confide.protocol.errors import ConfideError, Refused
from confide.protocol.methods.base import Batch, Query, Tally
from confide.protocol.plan import Plan, read_query, write_query
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
        self,
        store: Store,
        campaign: Campaign,
        rounds: list[Round],
        *,
        now: float,
        key: X25519PrivateKey,
    ) -> None:
        """`key` opens the reports of shuffled campaigns."""
        self._store, self._campaign, self._rounds, self._key = store, campaign, rounds, key
        self._asking = campaign.state == OPEN and now < campaign.plan.expires.timestamp()
        plan = campaign.plan
        secret = store.secret_model(plan.model) if plan.terms.sent_features else None
        self._scores = report_scores(plan, secret)

    def __call__(self, query: Query, number: int) -> Tally:
        if number >= len(self._rounds) and not self._asking:
            # The campaign asks nobody any more, so the tally is empty.
            nobody: Tally = query.tally([], self._scores)
            return nobody
        asked = write_query(query, plan=self._campaign.digest, round_=number)
        if number >= len(self._rounds):
            raise Unanswered(number, asked)
        if self._rounds[number].digest != hashlib.sha256(asked).digest():
            raise OtherVersion(
                f"round {number} was asked by another version of this program, which must finish "
                "the campaign"
            )
        return self._tally(query, number)

    def _tally(self, query: Query, number: int) -> Tally:
        """The stored tally of a round, or one counted from its batches.

        A tally that is no more exact than the reports is stored: as JSON if it is small, as bytes
        if it is large and replaces the answers, which are then deleted.
        """
        try:
            found = self._stored(query, number)
            return self._count(query, number) if found is None else found
        except Refused:
            # Another process may have stored the tally, and deleted the answers, just now.
            found = self._stored(query, number)
            if found is None:
                raise
            return found

    def _stored(self, query: Query, number: int) -> Tally | None:
        found: Tally | None = None
        kept = self._rounds[number].tally
        if kept is not None:
            found = query.tally_from_json(json.loads(kept))
        elif query.whole and (data := self._store.long_tally(self._campaign.id, number)):
            found = query.tally_from_bytes(data)
        return found

    def _count(self, query: Query, number: int) -> Tally:
        found: Sequence[Batch] = StoredBatches(self._store, self._campaign, query, number=number)
        if self._campaign.plan.shuffling is not None:
            found = ShuffledReports(self._store, self._campaign, number).opened(query, self._key)
        elif not query.whole:
            earlier = [ids for before in range(number) for ids in self._ids(before)]
            found = counted_once(list(found), earlier)
        tally: Tally = query.tally(found, self._scores)
        values, data = tally.to_json(), tally.to_bytes()
        if values is not None:
            self._store.keep_tally(self._campaign.id, number, json.dumps(values))
        elif data is not None:
            self._store.keep_long_tally(self._campaign.id, number, data)
        return tally

    def _ids(self, number: int) -> Iterator[Array]:
        query, _ = read_query(
            self._store.query(self._campaign.id, number),
            plan=self._campaign.plan,
            plan_digest=self._campaign.digest,
        )
        for batch in StoredBatches(self._store, self._campaign, query, number=number):
            yield batch.ids


class Replay:
    """A procedure, run on the stored rounds as far as they go, and again when there are more.

    It can be thrown away at any time: a new one comes to the same point. Going on with it saves
    reading all earlier rounds again, which may be long.
    """

    def __init__(self, plan: Plan, draw: Draw) -> None:
        self.draw = Audited(draw)
        self.recorded = RecordedTallies(plan, self._tally)
        self._procedure = Running(plan_procedure(plan, self.draw))

    def _tally(self, query: Query, number: int) -> Tally:
        return self._rounds(query, number)

    def proceed(self, rounds: StoredRounds) -> Any:
        """The result of the procedure; raises Unanswered at a query that nobody was asked yet."""
        self._rounds = rounds
        return self._procedure.proceed(self.recorded)
