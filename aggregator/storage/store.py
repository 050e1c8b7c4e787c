"""Campaigns on disk.

Every change is one transaction that checks the state it changes, so that two processes which do the
same thing at once do it once.
"""

import hashlib
import math
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, select, update

from confide.aggregator.storage.database import insert, tidy
from confide.aggregator.storage.round_store import MIXED, TALLY, RoundStore
from confide.aggregator.storage.schema import (
    batches,
    campaigns,
    cards,
    models,
    queries,
    releases,
    round_data,
    secret_models,
    trainings,
)
from confide.aggregator.storage.stored_campaign import (
    CALIBRATED,
    CLOSED,
    DRAFT,
    OPEN,
    OPERATOR,
    PUBLISHED,
    TRAINED,
    Campaign,
    Settings,
)
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.errors import BadInput
from confide.protocol.plan import digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from confide.protocol.wire.service import campaign_id


class Store(RoundStore):
    """The durable state of every campaign, with that of its rounds."""

    def create(
        self, signed_plan: bytes, settings: Settings, *, now: float, secret: bytes | None = None
    ) -> Campaign:
        """Store the signed plan as a draft, with the model that the aggregator alone scores with.

        A model that owners may fetch is no secret, so it is refused as one.
        """
        plan = parse(wire.SignedPlan, signed_plan).plan
        name = campaign_id(digest(plan))
        row = {"id": name, "signed_plan": signed_plan, "settings": settings.to_json()}
        with self._writing.begin() as db:
            made = (
                insert(db.dialect.name, campaigns)
                .on_conflict_do_nothing()
                .returning(campaigns.c.id)
            )
            if db.execute(made.values(**row, state=DRAFT, created=now)).first() is None:
                raise BadInput(f"campaign {name} exists already")
            if secret is not None:
                _keep_secret(db, secret)
        return self.campaign(name)

    def campaign(self, name: str) -> Campaign:
        """The campaign whose id begins like this."""
        found = [one for one in self.campaigns() if name and one.id.startswith(name)]
        if len(found) != 1:
            raise BadInput(
                f"{len(found)} campaigns have an id that begins with {name!r}; accepted is the "
                "beginning of one"
            )
        return found[0]

    def campaigns(self, *states: str) -> list[Campaign]:
        """All campaigns, or those in these states, oldest first."""
        columns = campaigns.c
        wanted = select(
            columns.id, columns.signed_plan, columns.settings, columns.state, columns.reason
        )
        if states:
            wanted = wanted.where(columns.state.in_(states))
        with self.engine.connect() as db:
            return [
                Campaign(*row) for row in db.execute(wanted.order_by(columns.created, columns.id))
            ]

    def check_key(self, key: bytes) -> None:
        """Refuse a key that did not sign the plan of every campaign that still awaits its card.

        Owners would refuse the cards that another key signs.
        """
        for campaign in self.campaigns(DRAFT, OPEN, CLOSED):
            if campaign.reason is None and campaign.readable and campaign.signer != key:
                raise BadInput(
                    f"campaign {campaign.id} is {campaign.state} and its plan is signed by "
                    f"{campaign.signer.hex()}; the key given is {key.hex()}: its cards would be "
                    "refused. Accepted is the key that signed the plan"
                )

    def open(self, campaign: str, *, now: float) -> None:
        """Take answers as soon as the first query is stored."""
        self._move(campaign, {DRAFT}, OPEN, opened=now)

    def close(self, campaign: str, *, now: float) -> None:
        """Take no more answers; those that are stored are counted."""
        with self._writing.begin() as db:
            self._move(campaign, {OPEN}, CLOSED, closed=now, db=db)
            mine = (queries.c.campaign == campaign) & queries.c.closed.is_(None)
            db.execute(update(queries).where(mine).values(closed=now, because=OPERATOR))

    def calibrate(self, campaign: str, made: dict[str, str], *, now: float) -> None:
        """Keep the cards, by view, of a campaign whose procedure has ended; the first are kept."""
        with self._writing.begin() as db:
            for view, card in made.items():
                values = {"campaign": campaign, "view": view, "card": card}
                db.execute(insert(db.dialect.name, cards).on_conflict_do_nothing().values(**values))
            _end(db, campaign, CALIBRATED, now=now)

    def train(self, campaign: str, about: str, weights: bytes, *, now: float) -> None:
        """Keep the result of a training whose procedure has ended; the first is kept."""
        with self._writing.begin() as db:
            row = {"campaign": campaign, "about": about, "weights": weights}
            db.execute(insert(db.dialect.name, trainings).on_conflict_do_nothing().values(**row))
            _end(db, campaign, TRAINED, now=now)

    def about_training(self, campaign: str) -> str | None:
        """The JSON object about the weights that a training ended in."""
        found = self._training(campaign, trainings.c.about)
        return None if found is None else str(found)

    def weights(self, campaign: str) -> bytes | None:
        """The weights that a training ended in, float32, little endian."""
        found = self._training(campaign, trainings.c.weights)
        return None if found is None else bytes(found)

    def _training(self, campaign: str, column: ColumnElement[Any]) -> Any:
        with self.engine.connect() as db:
            return db.execute(select(column).where(trainings.c.campaign == campaign)).scalar()

    def keep_model(self, data: bytes) -> None:
        """Keep the file of a model, which owners of campaigns that name it may fetch."""
        row = {"digest": hashlib.sha256(data).digest(), "data": data}
        with self._writing.begin() as db:
            db.execute(insert(db.dialect.name, models).on_conflict_do_nothing().values(**row))

    def model(self, digest: bytes) -> bytes | None:
        """The file of the model with this SHA-256, if it is kept here."""
        with self.engine.connect() as db:
            found = db.execute(select(models.c.data).where(models.c.digest == digest)).scalar()
        return None if found is None else bytes(found)

    def secret_model(self, digest: bytes) -> bytes | None:
        """The file of the model with this SHA-256 that only the aggregator scores with."""
        mine = secret_models.c.digest == digest
        with self.engine.connect() as db:
            found = db.execute(select(secret_models.c.data).where(mine)).scalar()
        return None if found is None else bytes(found)

    def fail(self, campaign: str, reason: str, *, now: float) -> None:
        """Close a campaign that can have no certificate, with the reason."""
        with self._writing.begin() as db:
            ready = (campaigns.c.id == campaign) & campaigns.c.state.in_((OPEN, CLOSED))
            db.execute(
                update(campaigns).where(ready).values(state=CLOSED, reason=reason, closed=now)
            )
            mine = (queries.c.campaign == campaign) & queries.c.closed.is_(None)
            db.execute(update(queries).where(mine).values(closed=now, because=OPERATOR))

    def publish(self, campaign: str, *, now: float) -> None:
        """Let every owner fetch the card, which the key of the plan must have signed."""
        card, signed_by = self.card(campaign, PUBLIC), self.campaign(campaign).signer
        if card is not None and parse_card(card).key != signed_by:
            raise BadInput(
                f"the card of campaign {campaign} is signed by {parse_card(card).key.hex()} and "
                f"its plan by {signed_by.hex()}; accepted is a card of the plan's key, owners "
                "refuse others"
            )
        self._move(campaign, {CALIBRATED}, PUBLISHED, published=now)

    def purge(self, campaign: str, *, now: float) -> int:
        """Delete the reports of a campaign that has ended; the result and the counts stay."""
        with self._writing.begin() as db:
            row = db.execute(
                select(campaigns.c.state, campaigns.c.reason).where(campaigns.c.id == campaign)
            ).one()
            if row.state not in (CALIBRATED, PUBLISHED, TRAINED) and not (
                row.state == CLOSED and row.reason
            ):
                raise BadInput(
                    f"campaign {campaign} is {row.state}; reports are purged once it is "
                    "calibrated or trained, or has failed"
                )
            gone = db.execute(delete(batches).where(batches.c.campaign == campaign)).rowcount
            own = round_data.c.campaign == campaign
            db.execute(delete(round_data).where(own, round_data.c.name.in_((TALLY, MIXED))))
            first = func.coalesce(campaigns.c.purged, now)
            db.execute(update(campaigns).where(campaigns.c.id == campaign).values(purged=first))
        tidy(self.engine, wholly=True)
        return int(gone)

    def _move(
        self,
        campaign: str,
        before: set[str],
        after: str,
        *,
        db: Connection | None = None,
        **moments: float,
    ) -> None:
        if db is None:
            with self._writing.begin() as db:
                self._move(campaign, before, after, db=db, **moments)
            return
        ready = (campaigns.c.id == campaign) & campaigns.c.state.in_(before)
        if db.execute(update(campaigns).where(ready).values(state=after, **moments)).rowcount != 1:
            raise BadInput(
                f"campaign {campaign} is not {' or '.join(sorted(before))}, so it cannot become "
                f"{after}"
            )

    def lease(
        self, campaign: str, leader: str, *, now: float, seconds: float, most: float = math.inf
    ) -> bool:
        """Whether this leader may advance the campaign for so many seconds.

        It may if it holds the lease, if the lease has run out, or if the lease of another leader
        would last for more than `most` seconds from now.
        """
        free = (campaigns.c.leader == leader) | (campaigns.c.leased_until < now)
        if most < math.inf:
            free |= campaigns.c.leased_until > now + most
        with self._writing.begin() as db:
            taken = update(campaigns).where(campaigns.c.id == campaign, free)
            return bool(
                db.execute(taken.values(leader=leader, leased_until=now + seconds)).rowcount
            )

    def release_lease(self, leader: str) -> None:
        """Give up the leases of this leader, so that others may advance its campaigns at once."""
        with self._writing.begin() as db:
            db.execute(
                update(campaigns)
                .where(campaigns.c.leader == leader)
                .values(leader=None, leased_until=0.0)
            )

    def keep_release(self, campaign: str, release: str) -> str:
        """Keep the release of a campaign unless it has one, and return the one that is kept."""
        with self._writing.begin() as db:
            db.execute(
                insert(db.dialect.name, releases)
                .on_conflict_do_nothing()
                .values(campaign=campaign, release=release)
            )
        kept = self.release(campaign)
        assert kept is not None
        return kept

    def release(self, campaign: str) -> str | None:
        with self.engine.connect() as db:
            found = db.execute(
                select(releases.c.release).where(releases.c.campaign == campaign)
            ).scalar()
        return None if found is None else str(found)

    def card(self, campaign: str, view: str) -> str | None:
        with self.engine.connect() as db:
            mine = (cards.c.campaign == campaign) & (cards.c.view == view)
            found = db.execute(select(cards.c.card).where(mine)).scalar()
        return None if found is None else str(found)


def _end(db: Connection, campaign: str, state: str, *, now: float) -> None:
    """Say that a campaign has its result, unless it has one or was never open."""
    ready = (campaigns.c.id == campaign) & campaigns.c.state.in_((OPEN, CLOSED))
    db.execute(update(campaigns).where(ready).values(state=state, calibrated=now, reason=None))


def _keep_secret(db: Connection, data: bytes) -> None:
    """Keep a model that nobody may fetch."""
    digest = hashlib.sha256(data).digest()
    if db.execute(select(models.c.digest).where(models.c.digest == digest)).first() is not None:
        raise BadInput(
            f"owners may fetch the model {digest.hex()}; accepted is one that was not shown to them"
        )
    row = {"digest": digest, "data": data}
    db.execute(insert(db.dialect.name, secret_models).on_conflict_do_nothing().values(**row))
