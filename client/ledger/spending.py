"""Which records may answer a query, what they are charged, and whether their answer may leave."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confide.client.ledger.charges import Cost, LedgerQuery, SpendingLimits
from confide.protocol.errors import BadInput, Refused
from confide.protocol.wire import wire_pb2 as wire

# The queries of one plan with one digest: at most one row.
ONE_QUERY = "plan = (SELECT id FROM plans WHERE digest = ?) AND digest = ?"
# Stands for an answer that was acknowledged and is not kept any more.
DROPPED = "x''"
# Keys of the aggregator that asks: the one that signed the query, and all that signed its plan.
_KEYS = "(SELECT :key UNION SELECT aggregator FROM signers WHERE plan = :plan)"
# A plan of a ledger that did not keep keys yet counts for every aggregator that uses the name.
_SAME_CAMPAIGN = f"""spends.plan IN (
    SELECT id FROM plans WHERE campaign = :campaign AND (
        id NOT IN (SELECT plan FROM signers)
        OR id IN (SELECT plan FROM signers WHERE aggregator IN {_KEYS})))"""
# Payers that have answered this plan before, or cannot afford its cost.
_CANNOT_BE_CHARGED = f"""
SELECT record FROM asked JOIN spends USING (record) GROUP BY place, record HAVING
    SUM(epsilon) + :epsilon > :record_epsilon
    OR SUM(delta) + :delta > :record_delta
    OR COALESCE(SUM(epsilon) FILTER (WHERE {_SAME_CAMPAIGN}), 0) + :epsilon > :campaign_epsilon
    OR COALESCE(SUM(delta) FILTER (WHERE {_SAME_CAMPAIGN}), 0) + :delta > :campaign_delta
    OR SUM(spends.plan = :plan)"""
_WERE_NOT_CHARGED = """
SELECT record FROM asked WHERE record NOT IN (SELECT record FROM spends WHERE plan = :plan)"""
# Places of a record that another process has assigned to a person since they were numbered.
_UNKNOWN_PERSONS = """
SELECT 1 FROM asked JOIN persons USING (record)
WHERE (place, person) NOT IN (SELECT place, record FROM asked)"""
# The totals of the records behind an answer: those charged with its query or, in a later round,
# with the plan's first query. Persons pay too, and are not counted as records.
_TOTALS = f"""
SELECT
    SUM(record NOT IN (SELECT person FROM persons)),
    MAX(epsilon), MAX(delta), MAX(campaign_epsilon), MAX(campaign_delta)
FROM (
    SELECT
        record,
        SUM(epsilon) AS epsilon,
        SUM(delta) AS delta,
        SUM(epsilon * ({_SAME_CAMPAIGN})) AS campaign_epsilon,
        SUM(delta * ({_SAME_CAMPAIGN})) AS campaign_delta
    FROM spends
    WHERE record IN (
        SELECT record FROM spends WHERE plan = :plan AND (
            query = :query OR NOT EXISTS (SELECT 1 FROM spends WHERE query = :query)))
    GROUP BY record)"""


@dataclass(frozen=True)
class Answered:
    """A query that was answered before.

    None stands for an answer that could not be drawn, or that is not kept any more.
    """

    answer: bytes | None


def answered(db: sqlite3.Connection, plan: bytes, query: bytes) -> Answered | None:
    """Look a query up; None if it was never answered."""
    row = db.execute(
        f"SELECT NULLIF(answer, {DROPPED}) FROM queries WHERE {ONE_QUERY}", (plan, query)
    ).fetchone()
    return None if row is None else Answered(row[0])


def charged(db: sqlite3.Connection, plan: bytes) -> set[bytes]:
    """The records and persons that paid for a plan; none if it was never answered."""
    rows = db.execute(
        "SELECT record FROM spends JOIN plans ON spends.plan = plans.id WHERE digest = ?", (plan,)
    )
    return {row[0] for row in rows}


def training(db: sqlite3.Connection, plan: bytes, aggregator: bytes) -> bytes | None:
    """The bytes of a plan that trained a network here, if this key has signed it; else None."""
    row = db.execute(
        "SELECT training FROM plans JOIN signers ON signers.plan = plans.id WHERE digest = ? AND "
        "aggregator = ?",
        (plan, aggregator),
    ).fetchone()
    return None if row is None else row[0]


def number_payers(db: sqlite3.Connection, payers: Sequence[Iterable[bytes]]) -> None:
    """Put the payers of every place into a table in memory, without a lock on the file.

    It belongs into a transaction: outside, every row would be one.
    """
    db.execute("DELETE FROM asked")
    db.executemany(
        "INSERT INTO asked VALUES (?, ?)",
        ((place, payer) for place, each in enumerate(payers) for payer in each),
    )


def able_places(
    db: sqlite3.Connection, asked: LedgerQuery, *, cost: Cost, limits: SpendingLimits
) -> list[int]:
    """The numbered places that may answer; none if they are too few, or the round is answered.

    Payers of the other places leave the table in memory: what they have spent can only grow. A
    later round is refused while the limits are below what its records have spent.
    """
    known = db.execute("SELECT 1 FROM persons LIMIT 1").fetchone() is not None
    if known and db.execute(_UNKNOWN_PERSONS).fetchone() is not None:
        raise BadInput(
            "another process has assigned records to persons meanwhile, who would have to pay; "
            "start again"
        )
    plan = _plan_id(db, asked.plan)
    rounds = [row[0] for row in db.execute("SELECT round FROM queries WHERE plan = ?", (plan,))]
    if asked.rounds and rounds:
        if asked.round_ in rounds or len(rounds) >= asked.rounds:
            return []
        first = {"plan": plan, "query": None, "campaign": asked.campaign, "key": asked.aggregator}
        if not _within(db, first, limits):
            raise Refused(wire.Code.EPSILON_PER_RECORD)
        excluded = _WERE_NOT_CHARGED
    elif cost.within(limits.record) and cost.within(limits.campaign):
        excluded = _CANNOT_BE_CHARGED
    else:
        return []
    values = {
        "plan": plan,
        "campaign": asked.campaign,
        "key": asked.aggregator,
        "epsilon": cost.epsilon,
        "delta": cost.delta,
        "record_epsilon": limits.record.epsilon,
        "record_delta": limits.record.delta,
        "campaign_epsilon": limits.campaign.epsilon,
        "campaign_delta": limits.campaign.delta,
    }
    db.execute(
        f"DELETE FROM asked WHERE place IN (SELECT place FROM asked WHERE record IN ({excluded}))",
        values,
    )
    places = list(dict.fromkeys(row[0] for row in db.execute("SELECT place FROM asked")))
    return places if len(places) >= limits.fewest else []


def charge(
    db: sqlite3.Connection,
    asked: LedgerQuery,
    *,
    cost: Cost,
    answer: bytes | None,
    now: datetime,
) -> None:
    """Write an answer and the charges of the payers whose places are able to answer.

    A plan of several rounds is charged with its first query.
    """
    plan = _plan_id(db, asked.plan)
    if plan < 0:
        db.execute(
            "INSERT INTO plans (digest, campaign, epsilon, training) VALUES (?, ?, ?, ?)",
            (asked.plan, asked.campaign, cost.epsilon, asked.training),
        )
        plan = _plan_id(db, asked.plan)
    db.execute("INSERT OR IGNORE INTO signers VALUES (?, ?)", (plan, asked.aggregator))
    earlier = None
    if asked.rounds:
        earlier = db.execute("SELECT 1 FROM queries WHERE plan = ?", (plan,)).fetchone()
        # Earlier rounds are over, and these answers are held elsewhere: a training would keep all
        # weights that ever left. Their rows stay, so that no round is answered twice.
        db.execute(
            f"UPDATE queries SET answer = {DROPPED}, receipt = COALESCE(receipt, {wire.Code.OK}) "
            "WHERE plan = ? AND (receipt IS NOT NULL OR ?)",
            (plan, asked.later),
        )
    query = db.execute(
        "INSERT INTO queries (plan, digest, round, at, answer, together) VALUES (?, ?, ?, ?, ?, ?)",
        (plan, asked.query, asked.round_, now.isoformat(), answer, asked.together),
    ).lastrowid
    if earlier is not None:
        return
    # Sorted by the table's primary key, so that the file is written from front to back.
    db.execute(
        "INSERT INTO spends SELECT DISTINCT record, ?, ?, ?, ? FROM asked ORDER BY record",
        (plan, query, cost.epsilon, cost.delta),
    )


def together(db: sqlite3.Connection, plan: bytes, query: bytes) -> bool:
    """Whether a model saw many records at once for the answer to a query."""
    row = db.execute(f"SELECT together FROM queries WHERE {ONE_QUERY}", (plan, query)).fetchone()
    return row is not None and bool(row[0])


def may_leave(db: sqlite3.Connection, plan: bytes, query: bytes, *, limits: SpendingLimits) -> bool:
    """Whether the records behind a drawn answer are enough, and within these limits."""
    row = db.execute(
        "SELECT plan, queries.id, campaign FROM queries JOIN plans ON queries.plan = plans.id "
        "WHERE plans.digest = ? AND queries.digest = ?",
        (plan, query),
    ).fetchone()
    if row is None:
        return True
    values = dict(zip(("plan", "query", "campaign"), row, strict=True)) | {"key": None}
    return _within(db, values, limits)


def _within(db: sqlite3.Connection, values: dict[str, Any], limits: SpendingLimits) -> bool:
    """Whether the records that a query, or its plan, was charged to are enough, within limits."""
    count, *totals = db.execute(_TOTALS, values).fetchone()
    in_life, in_campaign = Cost(*totals[:2]), Cost(*totals[2:])
    return (
        count >= limits.fewest
        and in_life.within(limits.record)
        and in_campaign.within(limits.campaign)
    )


def _plan_id(db: sqlite3.Connection, digest: bytes) -> int:
    """The plan's number in the file; -1, which no row has, if it is new."""
    row = db.execute("SELECT id FROM plans WHERE digest = ?", (digest,)).fetchone()
    return -1 if row is None else int(row[0])
