"""What a shuffler keeps of a round besides what owners sent: the mixed answer, until it is held."""

import json

from sqlalchemy import ColumnElement, Engine, delete, select, update

from confide.aggregator.storage.database import tidy, writing
from confide.aggregator.storage.round_store import keep_data
from confide.aggregator.storage.schema import batches, round_data
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse, serialise

# The names of a round's long values: the answer to hand over, and a note that it is held.
MIXED, HELD = "mixed", "held"


class MixedRounds:
    """The mixed answers of all rounds, each made once."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._writing = engine, writing(engine)

    def keep(self, campaign: str, number: int, answer: bytes) -> bytes:
        """Keep a mixed answer unless the round has one; return the one that is kept.

        So the same bytes are handed over however often the shuffler is killed.
        """
        with self._writing.begin() as db:
            keep_data(db, campaign, number, name=MIXED, data=answer)
        kept = self.mixed(campaign, number)
        assert kept is not None
        return kept

    def mixed(self, campaign: str, number: int) -> bytes | None:
        """The mixed answer of a round, while it is to be handed over."""
        return self._data(campaign, number, MIXED)

    def held(self, campaign: str, number: int) -> dict[str, int] | None:
        """What was handed over of a round: how many reports of how many owners."""
        found = self._data(campaign, number, HELD)
        return None if found is None else dict(json.loads(found))

    def forget(self, campaign: str, number: int, told: dict[str, int]) -> None:
        """Note that a round is held, and delete its reports, mixed ones and those of each owner.

        Of what owners sent, their own ids stay, so that none counts again in a later round, and the
        digest of each batch, so that one that is sent again is known.
        """
        columns = batches.c
        mine = (columns.campaign == campaign) & (columns.round == number)
        with self._writing.begin() as db:
            keep_data(db, campaign, number, name=HELD, data=json.dumps(told).encode())
            for row in db.execute(select(columns.id, columns.answer).where(mine)).all():
                answer = parse(wire.Answer, row.answer)
                answer.batch.ClearField("body")
                bare = update(batches).where(columns.id == row.id)
                db.execute(bare.values(answer=serialise(answer)))
            db.execute(delete(round_data).where(_named(campaign, number, MIXED)))
        tidy(self._engine, wholly=True)

    def _data(self, campaign: str, number: int, name: str) -> bytes | None:
        with self._engine.connect() as db:
            found = db.execute(
                select(round_data.c.data).where(_named(campaign, number, name))
            ).scalar()
        return None if found is None else bytes(found)


def _named(campaign: str, number: int, name: str) -> ColumnElement[bool]:
    columns = round_data.c
    return (columns.campaign == campaign) & (columns.round == number) & (columns.name == name)
