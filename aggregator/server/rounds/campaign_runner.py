"""Advances campaigns: closes due rounds, replays procedures, and opens the next round.

A step closes the round that is due, gives the procedure every tally so far, and asks its next
query. A procedure is replayed from its stored tallies, so any process can replace one that died, at
any point. A process that goes on remembers how far its replay is; that, like the lease, only saves
work: two processes that advance the same campaign write the same rows.
"""

import json
import logging
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.aggregator.campaigns.admission import RoundCounts
from confide.aggregator.campaigns.driver import RecordedTallies, TooFew, check_learned, conclude
from confide.aggregator.campaigns.releases import read_release
from confide.aggregator.campaigns.training_result import about_text, about_training
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.clock import Clock
from confide.aggregator.logs import place_of
from confide.aggregator.procedures.averaging import Learned
from confide.aggregator.procedures.counts.central import Draw
from confide.aggregator.server.rounds.handover import ShuffledReports, shuffled_rounds
from confide.aggregator.server.rounds.stored_rounds import (
    OtherVersion,
    Replay,
    StoredRounds,
    Unanswered,
)
from confide.aggregator.storage import views
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import (
    CLOSED,
    DEADLINE,
    ENOUGH,
    OPEN,
    Campaign,
    Round,
)
from confide.protocol.cards.card import AUDITOR, PUBLIC
from confide.protocol.certificate import Certificate
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.training.mean_weights import packed
from confide.protocol.plan import Plan
from confide.protocol.sealing import sealing_key
from confide.protocol.wire.service import campaign_id

log = logging.getLogger(__name__)

UNUSABLE = "what came in is not what the procedure accepts, so it cannot end in a result"
# The longest time a campaign stops when the process that advances it dies.
LEASE_SECONDS = 2.0
# How far ahead the clock of another process may be. A lease beyond that would stop a campaign for
# as long as the clocks differ.
SKEW_SECONDS = 10.0


class CampaignRunner:
    """Advances the campaigns of a store; `name` identifies this process in leases."""

    def __init__(
        self, store: Store, *, name: str, key: Ed25519PrivateKey, entropy: Entropy, clock: Clock
    ) -> None:
        self._store, self._name, self._key, self._entropy = store, name, key, entropy
        self._clock, self._now = clock, clock.now
        self._public = key.public_key().public_bytes_raw()
        self._sealing = sealing_key(key)
        self._leased_until: dict[str, float] = {}
        self._stuck: set[str] = set()
        self._skewed: set[str] = set()
        self._replays: dict[str, Replay] = {}

    def step(self) -> set[str]:
        """Advance every due campaign that no other process leads; return the ids of those stuck.

        While the clock is in doubt nothing is due, because a round once closed, or a campaign once
        calibrated, stays so.
        """
        jump = self._clock.look()
        if jump:
            # The leases are dated by the clock before the jump.
            self._leased_until = {}
            log.error(
                "the clock jumped; nothing is advanced until it is steady",
                extra={"seconds": round(jump)},
            )
        if not self._clock.believed:
            return self._stuck
        stuck, under_way = set(), self._store.campaigns(OPEN, CLOSED)
        ids = {one.id for one in under_way}
        self._replays = {name: one for name, one in self._replays.items() if name in ids}
        for campaign in under_way:
            if campaign.reason is None and campaign.readable and campaign.signer != self._public:
                # The campaign was made while this process ran. A process with the key that owners
                # know has to advance it.
                stuck.add(campaign.id)
                if campaign.id not in self._stuck:
                    keys = {"signed_by": campaign.signer.hex(), "key": self._public.hex()}
                    log.error(
                        "a campaign is signed by another key",
                        extra={"campaign": campaign.id, **keys},
                    )
            elif campaign.reason is None and (not campaign.readable or self._leads(campaign.id)):
                try:
                    self._advance(campaign)
                # An error in one campaign must not stop the others.
                except Exception as error:
                    stuck.add(campaign.id)
                    if campaign.id not in self._stuck:
                        log.error(
                            "a campaign stands still",
                            extra={"campaign": campaign.id, "raised": place_of(error)},
                        )
        self._stuck = stuck
        return stuck

    def _advance(self, campaign: Campaign) -> None:
        plan, _ = campaign.plan, campaign.settings
        try:
            self.advance(campaign)
        except TooFew as error:
            self._store.fail(campaign.id, str(error), now=self._now())
            log.warning("too few reports or owners", extra={"campaign": campaign.id})
        except BadInput as error:
            # Every later step would find the same.
            self._store.fail(campaign.id, UNUSABLE, now=self._now())
            log.error(
                UNUSABLE,
                extra={"campaign": campaign.id, "method": plan.method, "raised": place_of(error)},
            )

    def _leads(self, campaign: str) -> bool:
        """Whether this process holds the lease of a campaign; renews it when half of it is over.

        A lease is a write, and several steps are taken per second, so it is not renewed at every
        step.
        """
        now = self._now()
        if self._leased_until.get(campaign, 0.0) > now + LEASE_SECONDS / 2:
            return True
        leads = self._store.lease(campaign, self._name, now=now, seconds=LEASE_SECONDS)
        if not leads:
            # Two leaders do no harm. Waiting does, if the lease comes from a wrong clock, perhaps
            # of a process that has died.
            leads = self._store.lease(
                campaign,
                self._name,
                now=now,
                seconds=LEASE_SECONDS,
                most=LEASE_SECONDS + SKEW_SECONDS,
            )
            if leads and campaign not in self._skewed:
                self._skewed.add(campaign)
                log.error(
                    "a lease lay too far ahead, so clocks differ; it was ended",
                    extra={"campaign": campaign},
                )
        self._leased_until[campaign] = now + LEASE_SECONDS if leads else 0.0
        return leads

    def advance(self, campaign: Campaign) -> None:
        """Close the open round and replay the procedure; do nothing if the round is not due."""
        rounds = self._store.rounds(campaign.id)
        if rounds and rounds[-1].closed is None:
            because = self._due(campaign, rounds[-1])
            if because is None:
                return
            self._store.close_round(campaign.id, rounds[-1].number, because, now=self._now())
            log.info(
                "round closed",
                extra={"campaign": campaign.id, "round": rounds[-1].number, "because": because},
            )
            rounds = self._store.rounds(campaign.id)
        self._replay(campaign, rounds)

    def _due(self, campaign: Campaign, last: Round) -> str | None:
        """The reason why the open round should be closed now, or None.

        When a shuffled round is handed over, its shuffler decides.
        """
        settings, now = campaign.settings, self._now()
        came = self._store.turnout(campaign.id, last.number)
        if campaign.plan.shuffling is not None:
            whole = came.finished and ShuffledReports(self._store, campaign, last.number).complete(
                came.reports
            )
            over = now >= campaign.plan.expires.timestamp()
            return ENOUGH if whole else DEADLINE if over else None
        floor = came.contributed >= campaign.plan.minimum_owners
        if (settings.owners and came.finished >= settings.owners) or (
            floor and 0 < settings.enough <= came.reports
        ):
            return ENOUGH
        if (floor and now >= last.deadline) or now >= campaign.plan.expires.timestamp():
            return DEADLINE
        return None

    def _replay(self, campaign: Campaign, rounds: list[Round]) -> None:
        """Run a new procedure on the stored tallies, to its first unanswered query or its end."""
        replay = self._replays.pop(campaign.id, None) or Replay(campaign.plan, self._draw(campaign))
        try:
            source = StoredRounds(self._store, campaign, rounds, now=self._now(), key=self._sealing)
            result = replay.proceed(source)
        except Unanswered as next_:
            self._replays[campaign.id] = replay
            self._store.ask(
                campaign.id,
                next_.round,
                next_.query,
                now=self._now(),
                seconds=campaign.settings.round_seconds,
            )
            log.info("round opened", extra={"campaign": campaign.id, "round": next_.round})
        except OtherVersion as error:
            self._store.fail(campaign.id, str(error), now=self._now())
        else:
            if campaign.plan.terms.trains:
                self._finish_training(campaign, result)
            else:
                self._finish(campaign, result, replay.recorded, audit=replay.draw.diagnostic)

    def _finish_training(self, campaign: Campaign, learned: Learned) -> None:
        """Store the weights, or raise TooFew if no owner, or too few of them, took part."""
        plan, engine = campaign.plan, self._store.engine
        received = views.received(engine, campaign.id)
        check_learned(
            plan, learned, received=received, sizes=views.contributions(engine, campaign.id)
        )
        about = about_text(about_training(plan, learned, received))
        self._store.train(campaign.id, about, packed(learned.weights), now=self._now())
        log.info("trained", extra={"campaign": campaign.id, "rounds": len(learned.owners)})

    def _training(self, plan: Plan) -> Plan | None:
        """The plan of the campaign that trained the model of this plan."""
        if not plan.training:
            return None
        return self._store.campaign(campaign_id(plan.training)).plan

    def _draw(self, campaign: Campaign) -> Draw:
        """Make a draw that stores a release before use, and never draws a stored one again."""

        def draw(mechanism: Any, histogram: Any, rank: Any) -> Any:
            kept = self._store.release(campaign.id)
            if kept is None:
                drawn = json.dumps(asdict(mechanism.release(histogram, rank, self._entropy)))
                kept = self._store.keep_release(campaign.id, drawn)
            return read_release(kept, mechanism, rank, where=f"campaign {campaign.id}")

        return draw

    def _round_counts(self, campaign: Campaign) -> list[RoundCounts]:
        """What every round has received."""
        one = views.overview(self._store.engine, campaign.id)
        assert one is not None
        return [
            RoundCounts(row.expected, row.reports, row.contributed, row.too_few)
            for row in views.rounds(self._store.engine, one)
        ]

    def _finish(
        self,
        campaign: Campaign,
        certificate: Certificate,
        recorded: RecordedTallies,
        *,
        audit: dict[str, float],
    ) -> None:
        """Issue the signed card, or raise TooFew if too few reports or owners were counted."""
        plan, now = campaign.plan, self._now()
        received = views.received(self._store.engine, campaign.id)
        seeded = views.seeded(self._store.engine, campaign.id)
        outcome = conclude(
            plan,
            certificate,
            received=received,
            seeded=seeded,
            sizes=recorded.sizes or views.contributions(self._store.engine, campaign.id),
            shuffled=shuffled_rounds(self._store, campaign, recorded.crowds),
            owners=recorded.owners,
            rounds=self._round_counts(campaign),
        )
        card = campaign_card(
            plan,
            outcome,
            diagnostic={},
            issued=datetime.fromtimestamp(now, UTC),
            training=self._training(plan),
        )
        made = {PUBLIC: card.sign(self._key).to_json()}
        if audit:
            made[AUDITOR] = replace(card, diagnostic=audit, view=AUDITOR).sign(self._key).to_json()
        self._store.calibrate(campaign.id, made, now=now)
        log.info("calibrated", extra={"campaign": campaign.id, "reports": certificate.n})
