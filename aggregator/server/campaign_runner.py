"""Advancing campaigns: close the round that is due, give the procedure every tally so far, and ask
what it asks next.

Nothing is remembered between two steps. A procedure is replayed from its stored tallies each time,
so a process that died is replaced by any other, at any point. The lease only saves work: two that
advance the same campaign write the same rows.
"""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.aggregator.campaigns.admission import read_answer
from confide.aggregator.campaigns.driver import TooFew, conclude, crowds, owner_sizes
from confide.aggregator.campaigns.releases import Audited, read_release
from confide.aggregator.campaigns.tally import (
    counted_once,
    empty_tally,
    tally_batches,
    tally_owners,
)
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.clock import Clock
from confide.aggregator.logs import place_of
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.quantiles.base import Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram
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
from confide.protocol.methods.queries import BitTally, CountTally, OwnerQuery, Query, Tally
from confide.protocol.scores.classification import SCORES
from confide.protocol.wire.packing import (
    ID_BYTES,
    Array,
    Batch,
    OwnerAnswer,
    read_query,
    write_query,
)

log = logging.getLogger(__name__)

UNUSABLE = "what came in is not what the procedure accepts, so it cannot end in a card"
# How long a campaign stands still, at most, when the process that advances it dies.
LEASE_SECONDS = 2.0
# How far ahead the clock of another process may be; a lease beyond that would stop a campaign for
# as long as clocks differ.
SKEW_SECONDS = 10.0


class Conductor:
    """Advances the campaigns of a store, under this name."""

    def __init__(
        self, store: Store, *, name: str, key: Ed25519PrivateKey, entropy: Entropy, clock: Clock
    ) -> None:
        self._store, self._name, self._key, self._entropy = store, name, key, entropy
        self._clock, self._now = clock, clock.now
        self._public = key.public_key().public_bytes_raw()
        self._leased_until: dict[str, float] = {}
        self._stuck: set[str] = set()
        self._skewed: set[str] = set()

    def step(self) -> set[str]:
        """Advance every campaign that has something due and that nobody else advances; which of
        them could not be.

        While the clock is in doubt nothing is due: a round that was closed, or a campaign that was
        calibrated, stays so.
        """
        jump = self._clock.look()
        if jump:
            # Leases were given by the time before.
            self._leased_until = {}
            log.error(
                "the clock jumped; nothing is advanced until it is steady",
                extra={"seconds": round(jump)},
            )
        if not self._clock.believed:
            return self._stuck
        stuck = set()
        for campaign in self._store.campaigns(OPEN, CLOSED):
            if campaign.reason is None and campaign.readable and campaign.signer != self._public:
                # Made while this process ran: another one, with the key that owners know, has to
                # advance it.
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
                # One campaign holds up no other.
                except Exception as error:
                    stuck.add(campaign.id)
                    if campaign.id not in self._stuck:
                        log.error(
                            "a campaign stands still",
                            extra={"campaign": campaign.id, "at": place_of(error)},
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
            # The same would be found at every step.
            self._store.fail(campaign.id, UNUSABLE, now=self._now())
            log.error(
                UNUSABLE,
                extra={"campaign": campaign.id, "method": plan.method, "at": place_of(error)},
            )

    def _leads(self, campaign: str) -> bool:
        """Renewed when half of it is over: a lease is a write, and a step is taken several times a
        second."""
        now = self._now()
        if self._leased_until.get(campaign, 0.0) > now + LEASE_SECONDS / 2:
            return True
        leads = self._store.lease(campaign, self._name, now=now, seconds=LEASE_SECONDS)
        if not leads:
            # Leading twice does no harm, and waiting for a clock that is wrong, and perhaps of
            # nobody alive, does.
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
        """Do what is due; nothing if the open round may still take answers."""
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
        """Why the open round should be closed now, if it should."""
        settings, now = campaign.settings, self._now()
        came = self._store.turnout(campaign.id, last.number)
        floor = came.contributed >= campaign.plan.minimum_owners
        if (settings.owners and came.finished >= settings.owners) or (
            floor and 0 < settings.enough <= came.reports
        ):
            return ENOUGH
        if (floor and now >= last.deadline) or now >= campaign.plan.expires.timestamp():
            return DEADLINE
        return None

    def _replay(self, campaign: Campaign, rounds: list[Round]) -> None:
        """Run a fresh procedure through what is known, up to the query that has no answers yet or
        to its end."""
        draw = Audited(self._draw(campaign))
        procedure: Any = plan_procedure(campaign.plan, draw)
        tally: Tally | None = None
        found: list[int] = []
        sizes: list[int] = []
        for number in count():
            try:
                query = procedure.send(tally)
            except StopIteration as finished:
                self._finish(campaign, finished.value, found, sizes, draw.diagnostic)
                return
            asked = write_query(query, plan=campaign.digest, round_=number)
            if number >= len(rounds):
                if campaign.state == OPEN and self._now() < campaign.plan.expires.timestamp():
                    self._store.ask(
                        campaign.id,
                        number,
                        asked,
                        now=self._now(),
                        seconds=campaign.settings.round_seconds,
                    )
                    log.info("round opened", extra={"campaign": campaign.id, "round": number})
                    return
                tally = empty_tally(query, SCORES[campaign.plan.score])
                continue
            if rounds[number].query != asked:
                reason = (
                    f"round {number} was asked by another version of this program, which must "
                    "finish the campaign"
                )
                self._store.fail(campaign.id, reason, now=self._now())
                return
            tally = self._tally(campaign, rounds, number)
            found += crowds(tally)
            sizes += [] if sizes else owner_sizes(campaign.plan, tally)

    def _tally(self, campaign: Campaign, rounds: list[Round], number: int) -> Tally:
        """The stored tally, or the batches counted; small tallies that are no more exact than the
        reports are kept."""
        kept = rounds[number].tally
        if kept is not None:
            return tally_from_json(kept)
        query, _ = read_query(rounds[number].query, plan=campaign.plan, plan_digest=campaign.digest)
        found = list(self._answers(campaign, query, number))
        if isinstance(query, OwnerQuery):
            tally = tally_owners(
                query, {name: answer for name, answer in found if isinstance(answer, OwnerAnswer)}
            )
        else:
            earlier = [
                ids for before in range(number) for ids in self._ids(campaign, rounds, before)
            ]
            fresh = counted_once([batch for _, batch in found if isinstance(batch, Batch)], earlier)
            tally = tally_batches(query, fresh, SCORES[campaign.plan.score])
        as_json = tally_to_json(tally)
        if as_json is not None:
            self._store.keep_tally(campaign.id, number, as_json)
        return tally

    def _answers(
        self, campaign: Campaign, query: Query, number: int
    ) -> Iterator[tuple[bytes, Batch | OwnerAnswer]]:
        for owner, answer in self._store.answers(campaign.id, number):
            yield (
                owner.to_bytes(8, "big"),
                read_answer(answer, query=query, plan=campaign.digest, round_=number),
            )

    def _ids(self, campaign: Campaign, rounds: list[Round], number: int) -> Iterator[Array]:
        query, _ = read_query(rounds[number].query, plan=campaign.plan, plan_digest=campaign.digest)
        for _, batch in self._answers(campaign, query, number):
            assert isinstance(batch, Batch)
            yield batch.ids.reshape(-1, ID_BYTES)

    def _draw(self, campaign: Campaign) -> Callable[[Mechanism, Histogram, int], Release]:
        """A release is stored before it is used; found there, it is not drawn again."""

        def draw(mechanism: Mechanism, histogram: Histogram, rank: int) -> Release:
            kept = self._store.release(campaign.id)
            if kept is None:
                drawn = json.dumps(asdict(mechanism.release(histogram, rank, self._entropy)))
                kept = self._store.keep_release(campaign.id, drawn)
            return read_release(kept, mechanism, rank, where=f"campaign {campaign.id}")

        return draw

    def _finish(
        self,
        campaign: Campaign,
        certificate: Certificate,
        found: list[int],
        sizes: list[int],
        audit: dict[str, float],
    ) -> None:
        """Issue the signed card, if there is enough to issue one."""
        plan, now = campaign.plan, self._now()
        received = views.received(self._store.engine, campaign.id)
        seeded = views.seeded(self._store.engine, campaign.id)
        sizes = sizes or views.contributions(self._store.engine, campaign.id)
        outcome = conclude(
            plan, certificate, received=received, seeded=seeded, crowds=found, sizes=sizes
        )
        card = campaign_card(plan, outcome, diagnostic={}, issued=datetime.fromtimestamp(now, UTC))
        made = {PUBLIC: card.sign(self._key).to_json()}
        if audit:
            made[AUDITOR] = replace(card, diagnostic=audit, view=AUDITOR).sign(self._key).to_json()
        self._store.calibrate(campaign.id, made, now=now)
        log.info("calibrated", extra={"campaign": campaign.id, "reports": certificate.n})


def tally_to_json(tally: Tally) -> str | None:
    """Tallies of bits and of noised counts; the others are large or exact, and are counted again
    from the batches."""
    if isinstance(tally, BitTally):
        return json.dumps({"answers": tally.answers, "ones": tally.ones})
    if isinstance(tally, CountTally):
        return json.dumps({"owners": {name.hex(): pair for name, pair in tally.answers.items()}})
    return None


def tally_from_json(text: str) -> BitTally | CountTally:
    values = json.loads(text)
    if "owners" in values:
        return CountTally(
            {bytes.fromhex(name): (pair[0], pair[1]) for name, pair in values["owners"].items()}
        )
    return BitTally(tuple(values["answers"]), tuple(values["ones"]))
