"""What the owner reads in the ledger: campaigns, totals, and answers that may not have arrived.

A record that belongs to a person is not counted by itself: the person is.
"""

import sqlite3
from dataclasses import dataclass

from confide.client.ledger.charges import Cost, SpendingLimits

_COUNTED = "record NOT IN (SELECT record FROM persons)"


@dataclass(frozen=True)
class CampaignSpending:
    """What one campaign has cost this owner so far."""

    campaign: str
    plan: bytes
    queries: int
    unanswered: int
    records: int
    epsilon: float
    last: str


def campaigns(db: sqlite3.Connection) -> list[CampaignSpending]:
    """Every campaign answered so far, oldest first."""
    rows = db.execute(
        "SELECT p.campaign, p.digest, COUNT(*), SUM(q.answer IS NULL), (SELECT COUNT(*) FROM "
        f"spends s WHERE s.plan = p.id AND s.{_COUNTED}), p.epsilon, MAX(q.at) FROM plans p JOIN "
        "queries q ON q.plan = p.id GROUP BY p.id ORDER BY MIN(q.at)"
    ).fetchall()
    return [CampaignSpending(*row) for row in rows]


def spent_by_record(db: sqlite3.Connection) -> tuple[int, float]:
    """How many records or persons have ever answered, and the largest epsilon of any of them."""
    row = db.execute(
        "SELECT COUNT(*), COALESCE(MAX(total), 0) FROM (SELECT SUM(epsilon) AS total FROM spends "
        f"WHERE {_COUNTED} GROUP BY record)"
    ).fetchone()
    return int(row[0]), float(row[1])


def cannot_pay(db: sqlite3.Connection, cost: Cost, limits: SpendingLimits) -> tuple[int, int]:
    """How many records or persons are known, and how many have too little left for a charge."""
    (known,) = db.execute(
        "SELECT COUNT(*) FROM (SELECT record FROM known UNION SELECT person FROM persons) "
        f"WHERE {_COUNTED}"
    ).fetchone()
    (spent,) = db.execute(
        f"SELECT COUNT(*) FROM (SELECT record FROM spends WHERE {_COUNTED} GROUP BY record "
        "HAVING SUM(epsilon) + ? > ? OR SUM(delta) + ? > ?)",
        (cost.epsilon, limits.record.epsilon, cost.delta, limits.record.delta),
    ).fetchone()
    return int(known), int(spent)


def unacknowledged(db: sqlite3.Connection, plan: bytes) -> list[tuple[bytes, bytes]]:
    """The queries without a receipt, with their answers, oldest first."""
    return db.execute(
        "SELECT q.digest, q.answer FROM queries q JOIN plans p ON q.plan = p.id "
        "WHERE p.digest = ? AND q.answer IS NOT NULL AND q.receipt IS NULL ORDER BY q.id",
        (plan,),
    ).fetchall()
