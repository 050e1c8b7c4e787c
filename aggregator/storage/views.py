"""Read-only queries about campaigns, for command lines, pages and gauges."""

from collections import Counter
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, case, func, select

from confide.aggregator.storage.round_store import QUERY
from confide.aggregator.storage.schema import (
    batches,
    campaigns,
    owners,
    parts,
    queries,
    rejections,
    round_data,
)
from confide.aggregator.storage.stored_campaign import Settings
from confide.protocol.errors import BadInput, Refused
from confide.protocol.plan import Plan, digest, read_query
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse

TOO_FEW = wire.Code.Name(wire.Code.GROUP_TOO_SMALL)


@dataclass(frozen=True)
class Overview:
    """A campaign as a row: its plan, its state, and two times in seconds since 1970.

    The times are when its card was published and when its reports were purged.
    """

    id: str
    plan: Plan
    settings: Settings
    state: str
    reason: str | None
    published: float | None
    purged: float | None


@dataclass(frozen=True)
class Part:
    """How far one owner is in one round; `code` is why it sends nothing, where it said so."""

    round: int
    owner: str
    batches: int
    reports: int
    finished: bool
    code: str | None


@dataclass(frozen=True)
class RoundView:
    """A round: when it opened and closed and why, and what it received.

    `too_few` owners declined it, because its slice holds fewer of their records than they allow.
    """

    number: int
    opened: float
    deadline: float
    closed: float | None
    because: str | None
    expected: int
    reports: int
    owners: int
    finished: int
    contributed: int
    too_few: int


@dataclass(frozen=True)
class OwnerView:
    """What one owner has sent in all rounds together, and its state in the last round.

    The state is None if the owner has not taken part in that round.
    """

    name: str
    reports: int
    batches: int
    rounds: int
    now: str | None


def overviews(engine: Engine) -> tuple[list[Overview], list[str]]:
    """Every campaign that this version can read, oldest first, and the ids of those it cannot."""
    with engine.connect() as db:
        rows = db.execute(select(campaigns).order_by(campaigns.c.created, campaigns.c.id)).all()
    found = {row.id: _overview(row) for row in rows}
    return [one for one in found.values() if one is not None], [
        name for name, one in found.items() if one is None
    ]


def overview(engine: Engine, campaign: str) -> Overview | None:
    """The campaign of this id, if there is one that can be read."""
    with engine.connect() as db:
        row = db.execute(select(campaigns).where(campaigns.c.id == campaign)).first()
    return None if row is None else _overview(row)


def _overview(row: Any) -> Overview | None:
    try:
        plan, settings = read_plan(row.signed_plan), Settings.from_json(row.settings)
    except (BadInput, Refused):
        return None
    return Overview(row.id, plan, settings, row.state, row.reason, row.published, row.purged)


@lru_cache(maxsize=256)
def read_plan(signed: bytes) -> Plan:
    """A plan never changes, so it is read once."""
    return Plan.from_bytes(parse(wire.SignedPlan, signed).plan)


def progress(engine: Engine, campaign: str) -> list[Part]:
    """What each owner has sent, round by round."""
    columns = parts.c
    wanted = select(
        columns.round,
        owners.c.name,
        columns.batches,
        columns.reports,
        columns.finished,
        columns.code,
    )
    joined = wanted.join(owners, owners.c.id == columns.owner).where(columns.campaign == campaign)
    with engine.connect() as db:
        return [Part(*row) for row in db.execute(joined.order_by(columns.round, owners.c.name))]


def senders(engine: Engine, one: Overview, *, last: int, most: int) -> tuple[list[OwnerView], int]:
    """The owners with the most reports, and the number of all owners.

    `last` is the round of which the state of each owner is given.
    """
    columns, mine = parts.c, parts.c.campaign == one.id
    sums = (
        select(
            columns.owner,
            func.sum(columns.reports).label("reports"),
            func.sum(columns.batches).label("batches"),
            func.count().label("rounds"),
        )
        .where(mine)
        .group_by(columns.owner)
        .subquery()
    )
    ordered = (
        select(owners.c.name, sums)
        .join(sums, sums.c.owner == owners.c.id)
        .order_by(sums.c.reports.desc(), owners.c.name)
    )
    with engine.connect() as db:
        rows = db.execute(ordered.limit(most)).all()
        count = db.execute(select(func.count()).select_from(sums)).scalar_one()
        here = mine & (columns.round == last) & columns.owner.in_([row.owner for row in rows])
        now = {
            row.owner: row.code or ("finished" if row.finished else "sending")
            for row in db.execute(select(columns.owner, columns.finished, columns.code).where(here))
        }
    made = [
        OwnerView(row.name, int(row.reports), int(row.batches), row.rounds, now.get(row.owner))
        for row in rows
    ]
    return made, count


def rounds(engine: Engine, one: Overview) -> list[RoundView]:
    """Every round asked so far, with what it received."""
    columns, done = parts.c, func.sum(case((parts.c.finished, 1), else_=0))
    gave = func.sum(case((columns.reports > 0, 1), else_=0)).label("gave")
    reports = func.sum(columns.reports).label("reports")
    small = func.sum(case((columns.code == TOO_FEW, 1), else_=0)).label("small")
    came = select(
        columns.round, reports, func.count().label("owners"), done.label("done"), gave, small
    )
    with engine.connect() as db:
        asked = db.execute(
            select(queries).where(queries.c.campaign == one.id).order_by(queries.c.round)
        ).all()
        expected = _expected(db, one)
        rows = db.execute(came.where(columns.campaign == one.id).group_by(columns.round)).all()
    found = {
        row.round: tuple(map(int, (row.reports, row.owners, row.done, row.gave, row.small)))
        for row in rows
    }
    return [
        RoundView(
            row.round,
            row.opened,
            row.deadline,
            row.closed,
            row.because,
            expected.get(row.round, one.plan.expected_records),
            *found.get(row.round, (0, 0, 0, 0, 0)),
        )
        for row in asked
    ]


def _expected(db: Connection, one: Overview) -> dict[int, int]:
    """The reports expected in each round that asks a slice of the records."""
    plan = one.plan
    if plan.terms.rounds:
        return {}
    columns, name = round_data.c, digest(plan.to_bytes())
    mine = (columns.campaign == one.id) & (columns.name == QUERY)
    found = {}
    for row in db.execute(select(columns.round, columns.data).where(mine)):
        asked, _ = read_query(bytes(row.data), plan=plan, plan_digest=name)
        found[row.round] = round(plan.expected_records * (asked.stop - asked.start))
    return found


def rejected(engine: Engine, campaign: str) -> dict[str, int]:
    """How often a call or a batch was refused, by code.

    Campaign "" counts refusals that belong to no campaign.
    """
    counts: Counter[str] = Counter()
    with engine.connect() as db:
        for row in db.execute(select(rejections).where(rejections.c.campaign == campaign)):
            counts[row.code] += row.times
    return dict(counts)


def received(engine: Engine, campaign: str) -> dict[str, int]:
    """How answers were received, by code.

    OK counts an owner's answer to a round; an owner that declined is counted by its own code.
    """
    counts = Counter(part.code or "OK" for part in progress(engine, campaign) if part.finished)
    return dict(sorted((counts + Counter(rejected(engine, campaign))).items()))


def contributions(engine: Engine, campaign: str) -> list[int]:
    """The reports of each owner that are counted, in all rounds."""
    columns = parts.c
    with engine.connect() as db:
        sums = (
            select(func.sum(columns.reports))
            .where(columns.campaign == campaign)
            .group_by(columns.owner)
        )
        return [int(count) for count in db.execute(sums).scalars()]


def seeded(engine: Engine, campaign: str) -> bool:
    """Whether any report says it was drawn from a seed."""
    with engine.connect() as db:
        return bool(
            db.execute(
                select(parts.c.seeded).where(parts.c.campaign == campaign, parts.c.seeded)
            ).first()
        )


def status(engine: Engine, one: Overview) -> dict[str, Any]:
    """A campaign in full, as what JSON can hold."""
    return {
        "id": one.id,
        "title": one.plan.campaign,
        "method": f"{one.plan.method}:{one.plan.variant}",
        "state": one.state,
        "reason": one.reason,
        "epsilon": one.plan.epsilon,
        "settings": asdict(one.settings),
        "minimum_owners": one.plan.minimum_owners,
        "contributors": sum(count > 0 for count in contributions(engine, one.id)),
        "rounds_in_all": one.plan.terms.rounds or None,
        "rounds": [asdict(row) for row in rounds(engine, one)],
        "rejected": rejected(engine, one.id),
    }


def stored_batches(engine: Engine, campaign: str) -> int:
    """How many batches are on disk: none once they were purged."""
    with engine.connect() as db:
        return db.execute(
            select(func.count()).select_from(batches).where(batches.c.campaign == campaign)
        ).scalar_one()
