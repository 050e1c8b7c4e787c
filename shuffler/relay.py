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
from confide.shuffler.closing import due
from confide.shuffler.mixing import Fewest, NoCrowd, mixed
from confide.shuffler.storage import EXPIRED, WITH_CROWD, MixedRounds

log = logging.getLogger(__name__)

# How often the aggregator is asked how a campaign stands, and one that only awaits its card.
LOOK_SECONDS, CARD_SECONDS = 0.5, 5.0
# How long after its plan a round is kept whose end the aggregator does not tell.
WAIT_SECONDS = 60.0
NO_CROWD = "the plan expired before a round had its crowd; nothing of it was handed over"
CLOSED_OTHERWISE = "a round was closed before it had its crowd; nothing of it was handed over"
NO_CERTIFICATE = "the campaign has failed at the aggregator"


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
        self._forgotten: set[str] = set()

    def step(self) -> set[str]:
        """Advance every campaign; return the ids of those that stand still, whose log says why."""
        stuck = set()
        for campaign in self._store.campaigns(OPEN, CLOSED, CALIBRATED):
            try:
                if campaign.reason is not None:
                    self._forget(campaign)
                elif campaign.id in self._remotes:
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
        last = self._last(campaign)
        if last is not None and last.closed is None:
            came = self._store.turnout(campaign.id, last.number)
            because = due(campaign.plan, campaign.settings, last, came=came, now=self._now())
            if because is None:
                return
            # Who closes it first says why, and all that follows depends on that alone.
            self._store.close_round(campaign.id, last.number, because, now=self._now())
            log.info("round closed", extra={"campaign": campaign.id, "round": last.number})
            last = self._last(campaign)
        if last is not None and self._rounds.held(campaign.id, last.number) is None:
            self._hand_over(campaign, last, remote)
        elif time.monotonic() >= self._looked.get(campaign.id, 0.0):
            pause = LOOK_SECONDS if campaign.state == OPEN else CARD_SECONDS
            self._looked[campaign.id] = time.monotonic() + pause
            self._look(campaign, 0 if last is None else last.number + 1, remote)

    def _last(self, campaign: Campaign) -> Round | None:
        rounds = self._store.rounds(campaign.id)
        return rounds[-1] if rounds else None

    def _hand_over(self, campaign: Campaign, last: Round, remote: Aggregator) -> None:
        """Hand a closed round over, in the one order in which it was ever mixed."""
        if last.because not in WITH_CROWD:
            self._fail(campaign, NO_CROWD if last.because == EXPIRED else CLOSED_OTHERWISE)
            return
        number, answer = last.number, self._rounds.mixed(campaign.id, last.number)
        try:
            answer = answer or self._rounds.keep(campaign.id, number, self._mix(campaign, number))
        except NoCrowd as error:
            self._fail(campaign, str(error))
            return
        if answer is None:
            # Another process has handed it over, or has given up; the next step finds out.
            return
        pieces, delivery = list(split_answer(answer, campaign.plan, most=PIECE_BYTES)), Delivery()
        delivery.send(remote, pieces, ask=lambda: None)
        handed = parse(wire.Handover, parse(wire.Answer, answer).batch.handover.handover)
        told = {name: getattr(handed, name) for name in ("reports", "owners", "largest")}
        if delivery.code != wire.Code.OK:
            past = _went_on(remote, number)
            if past is None and self._now() < campaign.plan.expires.timestamp() + WAIT_SECONDS:
                return
            if not past:
                code = wire.Code.Name(delivery.code)
                self._fail(campaign, f"the aggregator took round {number} no more ({code})")
                return
            told["receipts"] = 0
        self._rounds.forget(campaign.id, number, told)
        log.info("round handed over", extra={"campaign": campaign.id, "round": number, **told})

    def _fail(self, campaign: Campaign, reason: str) -> None:
        """End a campaign, and delete what owners have sent of it."""
        self._store.fail(campaign.id, reason, now=self._now())
        log.error(reason, extra={"campaign": campaign.id})
        self._forget(campaign)

    def _forget(self, campaign: Campaign) -> None:
        """Delete what is left of a campaign that failed, perhaps before this process started."""
        if campaign.id not in self._forgotten:
            self._store.purge(campaign.id, now=self._now())
            self._forgotten.add(campaign.id)

    def _mix(self, campaign: Campaign, number: int) -> bytes:
        query, _ = read_query(
            self._store.query(campaign.id, number), plan=campaign.plan, plan_digest=campaign.digest
        )
        earlier = [ids for before in range(number) for ids in self._ids(campaign, before)]
        batches = list(StoredBatches(self._store, campaign, query, number=number))
        plan = campaign.plan
        assert plan.shuffling is not None
        return mixed(
            counted_once(batches, earlier),
            fewest=Fewest(plan.shuffling.crowd, plan.minimum_owners),
            plan=campaign.digest,
            round_=number,
            sizes=views.contributions(self._store.engine, campaign.id),
            key=self._key,
            entropy=self._entropy,
        )

    def _ids(self, campaign: Campaign, number: int) -> list[Array]:
        """The ids that owners gave to the reports of a round that was handed over."""
        answers = (answer for _, answer in self._store.answers(campaign.id, number))
        found = (parse(wire.Answer, answer).batch.ids for answer in answers)
        return [np.frombuffer(ids, dtype=np.uint8).reshape(-1, ID_BYTES) for ids in found]

    def _look(self, campaign: Campaign, number: int, remote: Aggregator) -> None:
        """Ask owners the aggregator's next query, or end with its campaign."""
        progress: service_pb2.Progress = next(remote.watch())
        if progress.failed:
            self._fail(campaign, NO_CERTIFICATE)
        elif progress.state == OPEN:
            if progress.taking and progress.rounds == number + 1:
                self._ask(campaign, number, remote.query())
        elif progress.state == PUBLISHED:
            self._publish(campaign, remote.card())
        elif campaign.state == OPEN:
            # Its card is to come.
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


def _went_on(remote: Aggregator, number: int) -> bool | None:
    """Whether the aggregator says that it is past a round: a receipt of it may have been lost.

    It purges reports after their campaign, and then no longer knows a batch that is sent again.
    None: it has closed the round, and has not counted it yet.
    """
    progress = next(remote.watch())
    if progress.state in (CALIBRATED, PUBLISHED) or progress.rounds > number + 1:
        return True
    return False if progress.failed or progress.taking else None
