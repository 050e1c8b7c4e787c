"""What can be read of campaigns while they run: for command lines, pages and gauges. Nothing here changes anything."""

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Engine, func, select

from aggregator.schema import batches, campaigns, owners, parts, queries, rejections
from aggregator.store import Settings
from protocol import wire_pb2 as wire
from protocol.campaign import Plan, digest, parse
from protocol.messages import read_query
from protocol.queries import BitQuery, CountQuery


@dataclass(frozen=True)
class Overview:
    """A campaign as a row: its plan, its state, and the moments (seconds since 1970) it went through."""

    id: str
    plan: Plan
    settings: Settings
    state: str
    reason: str | None
    created: float
    opened: float | None
    closed: float | None
    calibrated: float | None
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
    """A round: its query in short, when it opened and closed and why, and what came in."""

    number: int
    opened: float
    deadline: float
    closed: float | None
    because: str | None
    expected: int
    reports: int
    owners: int
    finished: int


@dataclass(frozen=True)
class Point:
    """A threshold that was asked, and the share of records at or below it: unbiased, with its standard error.

    Both are None until the round was counted with an answer to it.
    """

    round: int
    threshold: float
    answers: int
    coverage: float | None = None
    error: float | None = None


def overviews(engine: Engine) -> list[Overview]:
    """Every campaign, oldest first."""
    with engine.connect() as db:
        rows = db.execute(select(campaigns).order_by(campaigns.c.created, campaigns.c.id)).all()
    return [
        Overview(
            row.id, Plan.from_bytes(parse(wire.SignedPlan, row.signed_plan).plan), Settings(**json.loads(row.settings)),
            row.state, row.reason, row.created, row.opened, row.closed, row.calibrated, row.published, row.purged,
        )
        for row in rows
    ]  # fmt: skip


def progress(engine: Engine, campaign: str) -> list[Part]:
    """What each owner has sent, round by round."""
    columns = parts.c
    wanted = select(columns.round, owners.c.name, columns.batches, columns.reports, columns.finished, columns.code)
    joined = wanted.join(owners, owners.c.id == columns.owner).where(columns.campaign == campaign)
    with engine.connect() as db:
        return [Part(*row) for row in db.execute(joined.order_by(columns.round, owners.c.name))]


def rounds(engine: Engine, campaign: str) -> list[RoundView]:
    """Every round asked so far, with what came in."""
    with engine.connect() as db:
        asked = db.execute(select(queries).where(queries.c.campaign == campaign).order_by(queries.c.round)).all()
        found = db.execute(select(parts).where(parts.c.campaign == campaign)).all()
        signed = db.execute(select(campaigns.c.signed_plan).where(campaigns.c.id == campaign)).scalar_one()
    plan = Plan.from_bytes(parse(wire.SignedPlan, signed).plan)
    views = []
    for row in asked:
        query, mine = parse(wire.Query, row.query), [part for part in found if part.round == row.round]
        expected = round(plan.expected_records * (query.stop - query.start))
        views.append(
            RoundView(
                row.round, row.opened, row.deadline, row.closed, row.because, expected, sum(part.reports for part in mine),
                len(mine), sum(part.finished for part in mine),
            )
        )  # fmt: skip
    return views


def rejected(engine: Engine, campaign: str) -> dict[str, int]:
    """How often something was refused, by code; campaign "" is what could not be told to belong to one."""
    counts: Counter[str] = Counter()
    with engine.connect() as db:
        for row in db.execute(select(rejections).where(rejections.c.campaign == campaign)):
            counts[row.code] += row.times
    return dict(counts)


def received(engine: Engine, campaign: str) -> dict[str, int]:
    """How answers were received, by code: OK for an owner's answer to a round, its own code where it declined."""
    counts = Counter(part.code or "OK" for part in progress(engine, campaign) if part.finished)
    return dict(sorted((counts + Counter(rejected(engine, campaign))).items()))


def seeded(engine: Engine, campaign: str) -> bool:
    """Whether any report says it was drawn from a seed."""
    with engine.connect() as db:
        return bool(db.execute(select(parts.c.seeded).where(parts.c.campaign == campaign, parts.c.seeded)).first())


def points(engine: Engine, campaign: str) -> list[Point]:
    """Every threshold asked so far, in the order of rounds."""
    with engine.connect() as db:
        signed = db.execute(select(campaigns.c.signed_plan).where(campaigns.c.id == campaign)).scalar_one()
        asked = db.execute(select(queries).where(queries.c.campaign == campaign).order_by(queries.c.round)).all()
    plan_bytes = parse(wire.SignedPlan, signed).plan
    found: list[Point] = []
    for row in asked:
        query, number = read_query(row.query, plan=Plan.from_bytes(plan_bytes), plan_digest=digest(plan_bytes))
        tally = None if row.tally is None else json.loads(row.tally)
        if isinstance(query, BitQuery):
            found += _bit_points(number, query, tally)
        elif isinstance(query, CountQuery):
            found.append(_count_point(number, query, tally))
    return found


def _bit_points(number: int, query: BitQuery, tally: Any) -> list[Point]:
    """A threshold may stand in a query several times; its answers are pooled."""
    answers, ones = Counter(dict.fromkeys(query.thresholds, 0)), Counter[float]()
    for i, threshold in enumerate(query.thresholds if tally else ()):
        answers[threshold] += tally["answers"][i]
        ones[threshold] += tally["ones"][i]
    hit, spill = float(query.channel.hit), float(query.channel.spill)
    made = []
    for threshold, n in answers.items():
        rate = ones[threshold] / n if n else 0.0
        estimate = (rate - spill) / (hit - spill), math.sqrt(rate * (1 - rate) / n) / (hit - spill) if n else 0.0
        made.append(Point(number, threshold, n, *(estimate if n else ())))
    return made


def _count_point(number: int, query: CountQuery, tally: Any) -> Point:
    pairs = list(tally["owners"].values()) if tally else []
    n = sum(pair[0] for pair in pairs)
    if not n:
        return Point(number, query.threshold, n)
    return Point(number, query.threshold, n, sum(pair[1] for pair in pairs) / n, math.sqrt(query.variance * len(pairs)) / n)


def status(engine: Engine, one: Overview) -> dict[str, Any]:
    """A campaign in full, as what JSON can hold."""
    return {
        "id": one.id, "title": one.plan.campaign, "method": f"{one.plan.method}:{one.plan.variant}", "state": one.state,
        "reason": one.reason, "epsilon": one.plan.epsilon, "settings": asdict(one.settings),
        "rounds": [asdict(row) for row in rounds(engine, one.id)], "rejected": rejected(engine, one.id),
    }  # fmt: skip


def stored_batches(engine: Engine, campaign: str) -> int:
    """How many batches are on disk: none once they were purged."""
    with engine.connect() as db:
        return db.execute(select(func.count()).select_from(batches).where(batches.c.campaign == campaign)).scalar_one()
