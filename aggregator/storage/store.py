"""Campaigns and their rounds on disk. Every change is one transaction that checks what it changes,
so two processes that do the same thing at once do it once."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from confide.aggregator.campaigns.settings import check
from confide.aggregator.storage.database import tidy, writing
from confide.aggregator.storage.schema import batches, campaigns, cards, parts, queries, releases
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.errors import BadInput, Refused
from confide.protocol.plan import Plan, digest, signer
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from confide.protocol.wire.service import campaign_id

DRAFT, OPEN, CLOSED, CALIBRATED, PUBLISHED = "draft", "open", "closed", "calibrated", "published"
# Why a round was closed.
DEADLINE, ENOUGH, OPERATOR = "deadline", "enough", "operator"


@dataclass(frozen=True)
class Settings:
    """When a round ends: after so many seconds, or when `enough` reports are in, if the plan's
    `minimum_owners` have contributed; or as soon as `owners` have finished; 0 switches either off.

    The first two ask for evidence, so an owner that declined or sent nothing does not count; the
    last asks whether there is anybody to wait for, so it does.
    """

    round_seconds: float = 3600.0
    owners: int = 0
    enough: int = 0

    def __post_init__(self) -> None:
        check({name.replace("_", "-"): value for name, value in vars(self).items()})

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """As they were stored; those of another version may be refused."""
        try:
            return cls(**json.loads(text))
        except BadInput:
            raise
        except (TypeError, ValueError):
            raise BadInput(
                f"settings are {text[:200]!r}; accepted are {', '.join(cls.__dataclass_fields__)}"
            ) from None

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Campaign:
    """A campaign as it stands. Its plan and settings are read when asked for: one that is not
    readable is of another version, whose programs may be able to go on with it, and is left to
    them."""

    id: str
    signed_plan: bytes
    stored_settings: str
    state: str
    reason: str | None

    @cached_property
    def readable(self) -> bool:
        try:
            return bool(self.plan and self.settings)
        except (BadInput, Refused):
            return False

    @cached_property
    def settings(self) -> Settings:
        return Settings.from_json(self.stored_settings)

    @cached_property
    def plan_bytes(self) -> bytes:
        return parse(wire.SignedPlan, self.signed_plan).plan

    @cached_property
    def signer(self) -> bytes:
        """The public key whose cards the owners of this campaign accept."""
        return signer(self.signed_plan)

    @cached_property
    def plan(self) -> Plan:
        return Plan.from_bytes(self.plan_bytes)

    @cached_property
    def digest(self) -> bytes:
        return digest(self.plan_bytes)


@dataclass(frozen=True)
class Round:
    """A query that was asked; closed ones have a moment and a reason, and a tally once it was
    counted."""

    number: int
    query: bytes
    opened: float
    deadline: float
    closed: float | None
    because: str | None
    tally: str | None


class Turnout(NamedTuple):
    """Who has come to a round: owners that have finished, those whose reports are counted, and
    reports."""

    finished: int
    contributed: int
    reports: int


class Store:
    """The durable state of every campaign."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self._writing = engine, writing(engine)

    def create(self, signed_plan: bytes, settings: Settings, *, now: float) -> Campaign:
        """A draft of the signed plan."""
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
        """Refuse a key that did not sign the plans of all campaigns without a card: owners would
        refuse the cards it signs."""
        for campaign in self.campaigns(DRAFT, OPEN, CLOSED):
            if campaign.reason is None and campaign.readable and campaign.signer != key:
                raise BadInput(
                    f"campaign {campaign.id} is {campaign.state} and its plan is signed by "
                    f"{campaign.signer.hex()}; the key "
                    f"given is {key.hex()}: its cards would be refused. Accepted is the key that "
                    "signed the plan"
                )

    def open(self, campaign: str, *, now: float) -> None:
        """Start taking answers as soon as the first query is there."""
        self._move(campaign, {DRAFT}, OPEN, opened=now)

    def close(self, campaign: str, *, now: float) -> None:
        """Take no more answers; what is there is what counts."""
        with self._writing.begin() as db:
            self._move(campaign, {OPEN}, CLOSED, closed=now, db=db)
            mine = (queries.c.campaign == campaign) & queries.c.closed.is_(None)
            db.execute(update(queries).where(mine).values(closed=now, because=OPERATOR))

    def calibrate(self, campaign: str, made: dict[str, str], *, now: float) -> None:
        """Keep the cards, by view, of a campaign whose procedure has ended; the first to do so is
        right."""
        with self._writing.begin() as db:
            for view, card in made.items():
                values = {"campaign": campaign, "view": view, "card": card}
                db.execute(insert(db.dialect.name, cards).on_conflict_do_nothing().values(**values))
            ready = (campaigns.c.id == campaign) & campaigns.c.state.in_((OPEN, CLOSED))
            db.execute(
                update(campaigns).where(ready).values(state=CALIBRATED, calibrated=now, reason=None)
            )

    def fail(self, campaign: str, reason: str, *, now: float) -> None:
        """Close for good a campaign that can have no certificate."""
        with self._writing.begin() as db:
            ready = (campaigns.c.id == campaign) & campaigns.c.state.in_((OPEN, CLOSED))
            db.execute(
                update(campaigns).where(ready).values(state=CLOSED, reason=reason, closed=now)
            )
            mine = (queries.c.campaign == campaign) & queries.c.closed.is_(None)
            db.execute(update(queries).where(mine).values(closed=now, because=OPERATOR))

    def publish(self, campaign: str, *, now: float) -> None:
        """Let everybody fetch the card, which must be of the key that signed the plan."""
        card, signed_by = self.card(campaign, PUBLIC), self.campaign(campaign).signer
        if card is not None and parse_card(card).key != signed_by:
            raise BadInput(
                f"the card of campaign {campaign} is signed by {parse_card(card).key.hex()} and "
                f"its plan by {signed_by.hex()}; "
                "accepted is a card of the plan's key, owners refuse others"
            )
        self._move(campaign, {CALIBRATED}, PUBLISHED, published=now)

    def purge(self, campaign: str, *, now: float) -> int:
        """Delete the reports of a campaign that needs them no more; the card and the counts
        stay."""
        with self._writing.begin() as db:
            row = db.execute(
                select(campaigns.c.state, campaigns.c.reason).where(campaigns.c.id == campaign)
            ).one()
            if row.state not in (CALIBRATED, PUBLISHED) and not (
                row.state == CLOSED and row.reason
            ):
                raise BadInput(
                    f"campaign {campaign} is {row.state}; reports are purged once it is calibrated "
                    "or has failed"
                )
            gone = db.execute(delete(batches).where(batches.c.campaign == campaign)).rowcount
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
        """Whether this leader may advance the campaign for so many seconds: it did before, or
        nobody does now, or the one who does would for more than `most` seconds."""
        free = (campaigns.c.leader == leader) | (campaigns.c.leased_until < now)
        if most < math.inf:
            free |= campaigns.c.leased_until > now + most
        with self._writing.begin() as db:
            taken = update(campaigns).where(campaigns.c.id == campaign, free)
            return bool(
                db.execute(taken.values(leader=leader, leased_until=now + seconds)).rowcount
            )

    def release_lease(self, leader: str) -> None:
        """Let others advance at once what this leader advanced."""
        with self._writing.begin() as db:
            db.execute(
                update(campaigns)
                .where(campaigns.c.leader == leader)
                .values(leader=None, leased_until=0.0)
            )

    def rounds(self, campaign: str) -> list[Round]:
        """Every query asked so far, in order."""
        columns = queries.c
        fields = (
            columns.round,
            columns.query,
            columns.opened,
            columns.deadline,
            columns.closed,
            columns.because,
            columns.tally,
        )
        with self.engine.connect() as db:
            found = db.execute(
                select(*fields).where(columns.campaign == campaign).order_by(columns.round)
            )
            return [Round(*row) for row in found]

    def ask(self, campaign: str, number: int, query: bytes, *, now: float, seconds: float) -> None:
        """Open a round of an open campaign; one that was opened before stays as it is."""
        with self._writing.begin() as db:
            # The row is locked so that the campaign is not closed in between.
            alive = (
                select(campaigns.c.id)
                .where(campaigns.c.id == campaign, campaigns.c.state == OPEN)
                .with_for_update()
            )
            if db.execute(alive).first() is not None:
                moments = {"opened": now, "deadline": now + seconds}
                row = {
                    "campaign": campaign,
                    "round": number,
                    "query": query,
                    "batches": 0,
                    **moments,
                }
                db.execute(insert(db.dialect.name, queries).on_conflict_do_nothing().values(**row))

    def close_round(self, campaign: str, number: int, because: str, *, now: float) -> None:
        """From now on no batch enters the round: this waits for those that are being written, and
        the next find it closed."""
        mine = (
            (queries.c.campaign == campaign)
            & (queries.c.round == number)
            & queries.c.closed.is_(None)
        )
        with self._writing.begin() as db:
            db.execute(update(queries).where(mine).values(closed=now, because=because))

    def extend(self, campaign: str, number: int, *, deadline: float) -> None:
        """Give a round more time."""
        mine = (
            (queries.c.campaign == campaign)
            & (queries.c.round == number)
            & queries.c.closed.is_(None)
        )
        with self._writing.begin() as db:
            db.execute(update(queries).where(mine).values(deadline=deadline))

    def keep_tally(self, campaign: str, number: int, tally: str) -> None:
        mine = (queries.c.campaign == campaign) & (queries.c.round == number)
        with self._writing.begin() as db:
            db.execute(update(queries).where(mine).values(tally=tally))

    def turnout(self, campaign: str, number: int) -> Turnout:
        """Who has come to a round so far."""
        columns = parts.c
        mine = (columns.campaign == campaign) & (columns.round == number)
        with self.engine.connect() as db:
            rows = db.execute(select(columns.finished, columns.reports).where(mine)).all()
        contributed = sum(row.reports > 0 for row in rows)
        return Turnout(
            sum(row.finished for row in rows), contributed, sum(row.reports for row in rows)
        )

    def answers(self, campaign: str, number: int) -> Iterator[tuple[int, bytes]]:
        """The batches of a round with their owners, in an order that does not depend on when they
        came."""
        columns = batches.c
        mine = (columns.campaign == campaign) & (columns.round == number)
        with self.engine.connect() as db:
            ordered = (
                select(columns.owner, columns.answer)
                .where(mine)
                .order_by(columns.owner, columns.digest)
            )
            for row in db.execution_options(yield_per=256).execute(ordered):
                yield row.owner, row.answer

    def keep_release(self, campaign: str, release: str) -> str:
        """Keep the release of a campaign, and return the one that is kept: the first."""
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


def insert(kind: str, table: Any) -> Any:
    """An insert that can say what to do with rows that are there already; both databases can, each
    in its own class."""
    return (postgresql if kind == "postgresql" else sqlite).insert(table)
