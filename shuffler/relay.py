"""Carries campaigns from the aggregator to owners, and whole mixed rounds back.

A step does what is due: it closes a round that has its crowd, hands it over until the aggregator
holds it, and asks owners the aggregator's next query. All that it rests on is stored, so any
process can take over from one that died, at any point.
"""

import logging
import time
from collections.abc import Callable, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.aggregator.campaigns.report_ids import counted_once
from confide.aggregator.logs import place_of
from confide.aggregator.server.rounds.stored_batches import StoredBatches
from confide.aggregator.storage import views
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import (
    CALIBRATED,
    CLOSED,
    DEADLINE,
    ENOUGH,
    OPEN,
    PUBLISHED,
    Campaign,
    Round,
)
from confide.client.transport.delivery import Delivery
from confide.client.transport.grpc_client import Aggregator
from confide.client.transport.retry import Unreachable
from confide.protocol.cards.card import PUBLIC
from confide.protocol.exact.sampling import Entropy
from confide.protocol.plan import query_digest, read_query
from confide.protocol.wire import service_pb2
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import ID_BYTES, parse
from confide.protocol.wire.service import PIECE_BYTES
from confide.protocol.wire.splitting import split_answer
from confide.shuffler.mixing import mixed
from confide.shuffler.storage import MixedRounds

log = logging.getLogger(__name__)

# How often the aggregator is asked how a campaign stands.
LOOK_SECONDS = 0.5
NO_CROWD = "the plan expired before a round had its crowd; nothing of it was handed over"


class Relay:
    """The campaigns of a shuffler, each with its connection to the aggregator."""

    def __init__(
        self,
        store: Store,
        remotes: Mapping[str, Aggregator],
        *,
        key: Ed25519PrivateKey,
        entropy: Entropy,
        now: Callable[[], float],
    ) -> None:
        self._store, self._remotes, self._key = store, remotes, key
        self._entropy, self._now = entropy, now
        self._rounds = MixedRounds(store.engine)
        self._looked: dict[str, float] = {}
        self._stuck: set[str] = set()

    def step(self) -> set[str]:
        """Advance every campaign; return the ids of those that stand still, whose log says why."""
        stuck = set()
        for campaign in self._store.campaigns(OPEN, CLOSED, CALIBRATED):
            if campaign.reason is not None or campaign.id not in self._remotes:
                continue
            try:
                self._advance(campaign, self._remotes[campaign.id])
            # An error in one campaign must not stop the others; the next step tries again.
            except Exception as error:
                stuck.add(campaign.id)
                if campaign.id not in self._stuck:
                    known = isinstance(error, Unreachable)
                    log.error(
                        "the aggregator is out of reach" if known else "a campaign stands still",
                        extra={"campaign": campaign.id, "raised": place_of(error)},
                    )
        self._stuck = stuck
        return stuck

    def _advance(self, campaign: Campaign, remote: Aggregator) -> None:
        rounds = self._store.rounds(campaign.id)
        last = rounds[-1] if rounds else None
        if last is not None and last.closed is None and campaign.state == OPEN:
            because = self._due(campaign, last)
            if because is None:
                return
            self._store.close_round(campaign.id, last.number, because, now=self._now())
            log.info("round closed", extra={"campaign": campaign.id, "round": last.number})
        if last is not None and self._rounds.held(campaign.id, last.number) is None:
            self._hand_over(campaign, last.number, remote)
        elif time.monotonic() >= self._looked.get(campaign.id, 0.0) + LOOK_SECONDS:
            self._looked[campaign.id] = time.monotonic()
            self._look(campaign, 0 if last is None else last.number + 1, remote)

    def _due(self, campaign: Campaign, last: Round) -> str | None:
        """Why the open round may be closed now, or None: never below the crowd of the plan.

        Only this shuffler decides; nothing that the aggregator says has an influence.
        """
        settings, plan, now = campaign.settings, campaign.plan, self._now()
        assert plan.shuffling is not None
        came = self._store.turnout(campaign.id, last.number)
        crowd = came.reports >= plan.shuffling.crowd and came.contributed >= plan.minimum_owners
        if not crowd:
            if now >= plan.expires.timestamp():
                self._store.fail(campaign.id, NO_CROWD, now=now)
            return None
        if (settings.owners and came.finished >= settings.owners) or (
            0 < settings.enough <= came.reports
        ):
            return ENOUGH
        return DEADLINE if now >= min(last.deadline, plan.expires.timestamp()) else None

    def _hand_over(self, campaign: Campaign, number: int, remote: Aggregator) -> None:
        """Hand a closed round over, in the one order in which it was ever mixed."""
        answer = self._rounds.mixed(campaign.id, number)
        if answer is None:
            answer = self._rounds.keep(campaign.id, number, self._mix(campaign, number))
        pieces, delivery = list(split_answer(answer, campaign.plan, most=PIECE_BYTES)), Delivery()
        delivery.send(remote, pieces, ask=lambda: None)
        if delivery.code != wire.Code.OK:
            code = wire.Code.Name(delivery.code)
            reason = f"the aggregator took round {number} no more ({code})"
            self._store.fail(campaign.id, reason, now=self._now())
            log.error(reason, extra={"campaign": campaign.id})
            return
        handed = parse(wire.Handover, parse(wire.Answer, answer).batch.handover.handover)
        told = {name: getattr(handed, name) for name in ("reports", "owners", "largest")}
        self._rounds.forget(campaign.id, number, told)
        log.info("round handed over", extra={"campaign": campaign.id, "round": number, **told})

    def _mix(self, campaign: Campaign, number: int) -> bytes:
        query, _ = read_query(
            self._store.query(campaign.id, number), plan=campaign.plan, plan_digest=campaign.digest
        )
        earlier = [ids for before in range(number) for ids in self._ids(campaign, before)]
        batches = list(StoredBatches(self._store, campaign, query, number=number))
        return mixed(
            counted_once(batches, earlier),
            plan=campaign.digest,
            round_=number,
            sizes=views.contributions(self._store.engine, campaign.id),
            key=self._key,
            entropy=self._entropy,
        )

    def _ids(self, campaign: Campaign, number: int) -> list[Array]:
        """The ids of the reports of a round that was handed over, as owners had named them."""
        answers = (answer for _, answer in self._store.answers(campaign.id, number))
        found = (parse(wire.Answer, answer).batch.ids for answer in answers)
        return [np.frombuffer(ids, dtype=np.uint8).reshape(-1, ID_BYTES) for ids in found]

    def _look(self, campaign: Campaign, number: int, remote: Aggregator) -> None:
        """Ask owners the aggregator's next query, or end with its campaign."""
        progress: service_pb2.Progress = next(remote.watch())
        if progress.state == OPEN:
            if progress.taking and progress.rounds == number + 1:
                self._ask(campaign, number, remote.query())
        elif progress.state == PUBLISHED:
            self._publish(campaign, remote.card())
        elif campaign.state == OPEN:
            # It is calibrated, and its card is to come; or it has failed.
            self._store.close(campaign.id, now=self._now())

    def _ask(self, campaign: Campaign, number: int, query: bytes | None) -> None:
        if query is None:
            return
        _, round_ = read_query(query, plan=campaign.plan, plan_digest=campaign.digest)
        if round_ != number:
            return
        seconds = campaign.settings.round_seconds
        self._store.ask(campaign.id, number, query, now=self._now(), seconds=seconds)
        told = {"round": number, "query": query_digest(query).hex()[:16]}
        log.info("round opened", extra={"campaign": campaign.id, **told})

    def _publish(self, campaign: Campaign, card: str | None) -> None:
        """Let owners fetch the card here, too; the key of the plan must have signed it."""
        if card is None:
            return
        self._store.calibrate(campaign.id, {PUBLIC: card}, now=self._now())
        self._store.publish(campaign.id, now=self._now())
        log.info("published", extra={"campaign": campaign.id})
