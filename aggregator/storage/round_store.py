"""The rounds of campaigns on disk: the query of each, its end, its tally, and its batches."""

import hashlib
from collections.abc import Iterator

from sqlalchemy import ColumnElement, Connection, Engine, LargeBinary, func, select, update

from confide.aggregator.storage.database import insert, writing
from confide.aggregator.storage.schema import batches, campaigns, queries, round_data
from confide.aggregator.storage.stored_campaign import OPEN, Round, Turnout

# The names of a round's long values: HANDOVER is what a shuffler signed of it. In the database of a
# shuffler, MIXED is the answer that it hands over.
QUERY, TALLY, HANDOVER, MIXED = "query", "tally", "handover", "mixed"


class RoundStore:
    """The durable state of every round."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self._writing = engine, writing(engine)

    def rounds(self, campaign: str) -> list[Round]:
        """Every query asked so far, in order."""
        columns = queries.c
        fields = (
            columns.round,
            columns.digest,
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

    def query(self, campaign: str, number: int) -> bytes:
        """The query of a round that was asked."""
        found = self._data(campaign, number, QUERY)
        assert found is not None
        return found

    def queries(self, campaign: str) -> list[bytes]:
        """Every query asked so far, in order."""
        return [self.query(campaign, one.number) for one in self.rounds(campaign)]

    def long_tally(self, campaign: str, number: int) -> bytes | None:
        """The tally of a round, if it is counted and is stored as bytes."""
        return self._data(campaign, number, TALLY)

    def tally_heads(self, campaign: str, size: int) -> dict[int, bytes]:
        """The first bytes of every stored tally of a campaign, by round; tallies are long."""
        columns = round_data.c
        mine = (columns.campaign == campaign) & (columns.name == TALLY)
        head = func.substr(columns.data, 1, size, type_=LargeBinary)
        with self.engine.connect() as db:
            found = db.execute(select(columns.round, head).where(mine).order_by(columns.round))
            return {number: bytes(data) for number, data in found}

    def _data(self, campaign: str, number: int, name: str) -> bytes | None:
        columns = round_data.c
        mine = (columns.campaign == campaign) & (columns.round == number) & (columns.name == name)
        with self.engine.connect() as db:
            found = db.execute(select(columns.data).where(mine)).scalar()
        return None if found is None else bytes(found)

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
                row = {
                    "campaign": campaign,
                    "round": number,
                    "digest": hashlib.sha256(query).digest(),
                    **dict.fromkeys(("batches", "finished", "contributed", "reports"), 0),
                    "opened": now,
                    "deadline": now + seconds,
                }
                db.execute(insert(db.dialect.name, queries).on_conflict_do_nothing().values(**row))
                keep_data(db, campaign, number, name=QUERY, data=query)

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

    def keep_long_tally(self, campaign: str, number: int, tally: bytes) -> None:
        """Store the tally of a closed round as bytes, and delete the answers that it counts.

        Of each answer the digest stays, so that one that is sent again is known.
        """
        mine = (batches.c.campaign == campaign) & (batches.c.round == number)
        with self._writing.begin() as db:
            keep_data(db, campaign, number, name=TALLY, data=tally)
            db.execute(update(batches).where(mine).values(answer=b""))

    def signed_handover(self, campaign: str, number: int) -> bytes | None:
        """What the shuffler signed of a round, once its reports are opened."""
        return self._data(campaign, number, HANDOVER)

    def keep_handover(self, campaign: str, number: int, signed: bytes) -> None:
        """Keep what the shuffler signed of a round."""
        with self._writing.begin() as db:
            keep_data(db, campaign, number, name=HANDOVER, data=signed)

    def turnout(self, campaign: str, number: int) -> Turnout:
        """How many owners and reports a round has so far."""
        columns = queries.c
        counts = select(columns.finished, columns.contributed, columns.reports)
        with self.engine.connect() as db:
            found = db.execute(counts.where(_of_round(campaign, number))).first()
        return Turnout(0, 0, 0) if found is None else Turnout(*found)

    def batches(self, campaign: str, number: int) -> int:
        """How many batches of a round are stored."""
        mine = (batches.c.campaign == campaign) & (batches.c.round == number)
        with self.engine.connect() as db:
            return db.execute(select(func.count()).select_from(batches).where(mine)).scalar_one()

    def answers(
        self, campaign: str, number: int, *, at_once: int = 256
    ) -> Iterator[tuple[int, bytes]]:
        """The batches of a round with their owners, in an order independent of their arrival.

        So many of them are in memory at a time.
        """
        columns = batches.c
        mine = (columns.campaign == campaign) & (columns.round == number)
        with self.engine.connect() as db:
            ordered = (
                select(columns.owner, columns.answer)
                .where(mine)
                .order_by(columns.owner, columns.digest)
            )
            for row in db.execution_options(yield_per=at_once).execute(ordered):
                yield row.owner, row.answer


def _of_round(campaign: str, number: int) -> ColumnElement[bool]:
    return (queries.c.campaign == campaign) & (queries.c.round == number)


def keep_data(db: Connection, campaign: str, number: int, *, name: str, data: bytes) -> None:
    """Store a long value of a round unless it has one of this name."""
    row = {"campaign": campaign, "round": number, "name": name, "data": data}
    db.execute(insert(db.dialect.name, round_data).on_conflict_do_nothing().values(**row))
