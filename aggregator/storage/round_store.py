"""The rounds of campaigns on disk: the query of each, its end, its tally, and its batches."""

from collections.abc import Iterator

from sqlalchemy import ColumnElement, Engine, select, update

from confide.aggregator.storage.database import insert, writing
from confide.aggregator.storage.schema import batches, campaigns, parts, queries
from confide.aggregator.storage.stored_campaign import OPEN, Round, Turnout


class RoundStore:
    """The durable state of every round."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self._writing = engine, writing(engine)

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
        """Open a round of an open campaign; a round that exists already is not changed."""
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
        """Close a round: batches being written are waited for, later ones find it closed."""
        with self._writing.begin() as db:
            still_open = _of_round(campaign, number) & queries.c.closed.is_(None)
            db.execute(update(queries).where(still_open).values(closed=now, because=because))

    def extend(self, campaign: str, number: int, *, deadline: float) -> None:
        """Give a round more time."""
        with self._writing.begin() as db:
            still_open = _of_round(campaign, number) & queries.c.closed.is_(None)
            db.execute(update(queries).where(still_open).values(deadline=deadline))

    def keep_tally(self, campaign: str, number: int, tally: str) -> None:
        """Store the tally of a closed round."""
        with self._writing.begin() as db:
            mine = _of_round(campaign, number)
            db.execute(update(queries).where(mine).values(tally=tally))

    def turnout(self, campaign: str, number: int) -> Turnout:
        """How many owners and reports a round has so far."""
        columns = parts.c
        mine = (columns.campaign == campaign) & (columns.round == number)
        with self.engine.connect() as db:
            rows = db.execute(select(columns.finished, columns.reports).where(mine)).all()
        contributed = sum(row.reports > 0 for row in rows)
        return Turnout(
            sum(row.finished for row in rows), contributed, sum(row.reports for row in rows)
        )

    def answers(self, campaign: str, number: int) -> Iterator[tuple[int, bytes]]:
        """The batches of a round with their owners, in an order independent of their arrival."""
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


def _of_round(campaign: str, number: int) -> ColumnElement[bool]:
    return (queries.c.campaign == campaign) & (queries.c.round == number)
