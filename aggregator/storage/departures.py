"""Which owners have left a campaign while it runs, by what each of them sent in its rounds."""

from sqlalchemy import Engine, case, func, select

from confide.aggregator.storage.schema import parts, queries


def left_since_first(engine: Engine, campaign: str) -> float | None:
    """The share of the first round's reports whose owners are missing from the last one closed.

    None before a round has closed.
    """
    columns, mine = parts.c, parts.c.campaign == campaign
    closed = select(func.max(queries.c.round)).where(
        queries.c.campaign == campaign, queries.c.closed.is_not(None)
    )
    with engine.connect() as db:
        last = db.execute(closed).scalar()
        if last is None:
            return None
        there = select(columns.owner).where(mine, columns.round == last, columns.reports > 0)
        gone = case((columns.owner.in_(there), 0), else_=columns.reports)
        sums = select(func.sum(columns.reports), func.sum(gone))
        every, left = db.execute(sums.where(mine, columns.round == 0)).one()
    return int(left or 0) / max(int(every or 0), 1)
