"""What a shuffler keeps of a round besides what owners sent: the mixed answer, until it is held."""

import json

from sqlalchemy import ColumnElement, Connection, Engine, delete, select, update

from confide.aggregator.storage.database import tidy, writing
from confide.aggregator.storage.round_store import MIXED, keep_data
from confide.aggregator.storage.schema import batches, campaigns, queries, round_data
from confide.aggregator.storage.stored_campaign import DEADLINE, ENOUGH
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse, serialise

# The name of the note that a round is held.
HELD = "held"
# Why a round was closed: these ways are those of a round that has its crowd; EXPIRED is that of one
# whose plan expired first.
WITH_CROWD, EXPIRED = (ENOUGH, DEADLINE), "expired"


class MixedRounds:
    """The mixed answers of all rounds, each made once."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._writing = engine, writing(engine)

    def keep(self, campaign: str, number: int, answer: bytes) -> bytes | None:
        """Keep a mixed answer unless the round has one; return the one that is kept.

        So the same bytes are handed over however often the shuffler is killed. None: by now another
        process has handed the round over, or its campaign has failed, and nothing is kept.
        """
        held, mine = _named(campaign, number, HELD), _named(campaign, number, MIXED)
        with self._writing.begin() as db:
            reason = select(campaigns.c.reason).where(campaigns.c.id == campaign).with_for_update()
            failed = db.execute(reason).scalar_one() is not None
            closed = _locked(db, campaign, number) in WITH_CROWD
            if failed or not closed or _found(db, held) is not None:
                return None
            keep_data(db, campaign, number, name=MIXED, data=answer)
            return _found(db, mine)

    def mixed(self, campaign: str, number: int) -> bytes | None:
        """The mixed answer of a round, while it is to be handed over."""
        return self._data(campaign, number, MIXED)

    def held(self, campaign: str, number: int) -> dict[str, int] | None:
        """What was handed over of a round: how many reports of how many owners.

        With `receipts` 0 the aggregator went on, and gave no receipt for them.
        """
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
            _locked(db, campaign, number)
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
            return _found(db, _named(campaign, number, name))


def _locked(db: Connection, campaign: str, number: int) -> str | None:
    """Why a round was closed, which nobody changes until the transaction ends."""
    mine = (queries.c.campaign == campaign) & (queries.c.round == number)
    found = db.execute(select(queries.c.because).where(mine).with_for_update()).scalar_one()
    return None if found is None else str(found)


def _found(db: Connection, mine: ColumnElement[bool]) -> bytes | None:
    found = db.execute(select(round_data.c.data).where(mine)).scalar()
    return None if found is None else bytes(found)


def _named(campaign: str, number: int, name: str) -> ColumnElement[bool]:
    columns = round_data.c
    return (columns.campaign == campaign) & (columns.round == number) & (columns.name == name)
