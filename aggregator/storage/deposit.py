"""What is handed in, and how it is stored: batches once, with how far their owner is, and refusals
counted.

Everything here happens within the caller's transaction. Rows are written in one order everywhere,
so that two processes never wait for each other.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, bindparam, case, func, select, update

from confide.aggregator.campaigns.report_ids import ReportIds
from confide.aggregator.storage.database import insert
from confide.aggregator.storage.parcels import Key, Packed, Parcel, Rejection, Stored, summed
from confide.aggregator.storage.schema import batches, parts, queries, rejections
from confide.aggregator.storage.stored_campaign import DEADLINE
from confide.aggregator.storage.stored_ids import StoredIds
from confide.protocol.wire import wire_pb2 as wire

# What one statement takes at most.
MOST_ROWS = 64
_COLUMNS = "campaign", "round", "owner", "reports", "digest", "answer"


# Statements are made once: that takes longer than running them. The round is held until the
# transaction ends: nobody closes it, and no two processes count the same report, or take more of an
# owner than the round takes.
_DOOR = (
    select(queries.c.closed, queries.c.because)
    .where(queries.c.campaign == bindparam("campaign"), queries.c.round == bindparam("round"))
    .with_for_update()
)
_HERE = parts.c.round == bindparam("round")
_SENT = select(
    *(
        func.coalesce(func.sum(case((_HERE, column), else_=0)), 0)
        for column in (parts.c.batches, parts.c.reports)
    ),
    *(func.coalesce(func.sum(column), 0) for column in (parts.c.reports, parts.c.bytes)),
).where(parts.c.campaign == bindparam("campaign"), parts.c.owner == bindparam("owner"))
_MORE = (
    update(queries)
    .where(
        queries.c.campaign == bindparam("its_campaign"), queries.c.round == bindparam("its_round")
    )
    .values(batches=queries.c.batches + bindparam("more"))
)


@cache
def _advance(kind: str) -> Any:
    row = insert(kind, parts)
    more = {
        "batches": parts.c.batches + row.excluded.batches,
        "reports": parts.c.reports + row.excluded.reports,
        "bytes": parts.c.bytes + row.excluded.bytes,
        "seeded": parts.c.seeded | row.excluded.seeded,
        "finished": parts.c.finished | row.excluded.finished,
        "code": row.excluded.code,
    }
    return row.on_conflict_do_update(index_elements=["campaign", "round", "owner"], set_=more)


@cache
def _refuse(kind: str) -> Any:
    row = insert(kind, rejections)
    more = {"times": rejections.c.times + row.excluded.times}
    return row.on_conflict_do_update(index_elements=["campaign", "owner", "code"], set_=more)


def store_all(
    db: Connection, items: Sequence[Parcel | Rejection], known: StoredIds
) -> list[Stored]:
    """Write everything whose round is open, and say of each item what became of it."""
    answers = [Stored(wire.Code.OK)] * len(items)
    rounds: dict[tuple[str, int], list[int]] = {}
    for place, item in enumerate(items):
        if isinstance(item, Parcel):
            rounds.setdefault(item.key[:2], []).append(place)
    # In one order everywhere, so that two processes never wait for each other.
    for key in sorted(rounds):
        parcels = [item for place in rounds[key] if isinstance(item := items[place], Parcel)]
        for place, answer in zip(rounds[key], _store_round(db, parcels, known), strict=True):
            answers[place] = answer
    refused = summed(items)
    if refused:
        db.execute(_refuse(db.dialect.name), [rejection._asdict() for rejection in refused])
    return answers


def _door(db: Connection, campaign: str, number: int) -> int:
    """Whether a round is open, held open until the transaction ends."""
    found = db.execute(_DOOR, {"campaign": campaign, "round": number}).first()
    if found is None:
        return wire.Code.WRONG_ROUND
    if found.closed is None:
        return wire.Code.OK
    return wire.Code.LATE if found.because == DEADLINE else wire.Code.SURPLUS


def _store_round(db: Connection, parcels: Sequence[Parcel], known: StoredIds) -> list[Stored]:
    """Take in the parcels of one round, in the order they came.

    Batches that were stored before are taken in whenever they come again, others while the round is
    open, until the owner has sent as much as the round, or the campaign, takes of it.
    """
    campaign, number, _ = parcels[0].key
    door = _door(db, campaign, number)
    if door != wire.Code.OK:
        return [_again(db, parcel, door) for parcel in parcels]
    ids = known.of(db, campaign)
    sent: dict[Key, _Count] = {}
    answers: list[Stored | None] = []
    admitted = []
    for parcel in parcels:
        count = sent.get(parcel.key) or _sent(db, parcel.key)
        new = _new(db, parcel, count, ids)
        more = count.plus(new)
        if new and not more.within(parcel):
            if not parcel.whole:
                ids.take_back()
            answers.append(Stored(wire.Code.SURPLUS))
            continue
        sent[parcel.key] = more
        admitted.append(replace(parcel, batches=new))
        answers.append(None)
    stored = iter(_store(db, admitted, known) if admitted else ())
    told = [next(stored) if answer is None else answer.accepted for answer in answers]
    return [
        answer
        or Stored(wire.Code.OK, accepted, sum(batch.reports for batch in parcel.batches) - accepted)
        for parcel, answer, accepted in zip(parcels, answers, told, strict=True)
    ]


def _again(db: Connection, parcel: Parcel, door: int) -> Stored:
    """What is answered when the round is over: that batches were stored, if all were, and else why
    they are not."""
    if not parcel.batches or {batch.digest for batch in parcel.batches} - _stored(db, parcel):
        return Stored(door)
    return Stored(wire.Code.OK, duplicates=sum(batch.reports for batch in parcel.batches))


def _new(db: Connection, parcel: Parcel, count: "_Count", ids: ReportIds) -> list[Packed]:
    """The batches of a parcel that add something, each with the number of reports it adds; without
    ids, all reports are new.

    Their ids are known from now on.
    """
    if parcel.whole:
        return list(parcel.batches[: 0 if count.batches else 1])
    named = [batch for batch in parcel.batches if batch.ids]
    fresh = ids.add(b"".join(batch.ids for batch in named))
    if not fresh.all():
        edges = np.cumsum([0, *(batch.reports for batch in named)])
        added = [int(fresh[start:stop].sum()) for start, stop in itertools.pairwise(edges)]
        named = [
            batch._replace(reports=more) for batch, more in zip(named, added, strict=True) if more
        ]
    # A batch without reports has no ids that would tell.
    bare = {batch.digest: batch for batch in parcel.batches if not batch.ids}
    for name in _stored(db, parcel) if bare else ():
        bare.pop(name, None)
    return [*named, *bare.values()]


def _sent(db: Connection, key: Key) -> "_Count":
    """What an owner has sent to a round, and to the campaign."""
    return _Count(*(int(number) for number in db.execute(_SENT, _named(key)).one()))


def _named(key: Key) -> dict[str, str | int]:
    return dict(zip(("campaign", "round", "owner"), key, strict=True))


class _Count(NamedTuple):
    """What an owner has sent to a round, and how many reports and bytes to all rounds of the
    campaign."""

    batches: int
    reports: int
    in_all: int
    bytes: int

    def plus(self, more: Sequence[Packed]) -> "_Count":
        reports = sum(batch.reports for batch in more)
        return _Count(
            self.batches + len(more),
            self.reports + reports,
            self.in_all + reports,
            self.bytes + sum(len(batch.answer) for batch in more),
        )

    def within(self, parcel: Parcel) -> bool:
        most = max(self.batches, self.reports) <= parcel.most
        return most and self.in_all <= parcel.in_all and self.bytes <= parcel.most_bytes


def _stored(db: Connection, parcel: Parcel) -> set[bytes]:
    """The names of those batches of a parcel that are stored."""
    names = {batch.digest for batch in parcel.batches}
    mine = (
        (batches.c.campaign == parcel.campaign)
        & (batches.c.round == parcel.round)
        & (batches.c.owner == parcel.owner)
    )
    return (
        set(db.execute(select(batches.c.digest).where(mine, batches.c.digest.in_(names))).scalars())
        if names
        else set()
    )


def _store(db: Connection, parcels: list[Parcel], known: StoredIds) -> list[int]:
    """Add the batches of a round, and how far each owner is after these parcels; how many reports
    each parcel has added."""
    rows = {
        (parcel.owner, batch.digest): (*parcel.key, batch.reports, batch.digest, batch.answer)
        for parcel in reversed(parcels)
        for batch in reversed(parcel.batches)
    }
    inserted = _insert(db, list(rows.values()))
    mine: dict[Key, list[Parcel]] = {}
    accepted = []
    for parcel in parcels:
        # Of batches that an owner has given one name, the first is stored.
        names = {(parcel.owner, batch.digest): batch for batch in reversed(parcel.batches)}
        its = [batch for name, batch in names.items() if name in inserted]
        inserted -= set(names)
        mine.setdefault(parcel.key, []).append(replace(parcel, batches=its))
        accepted.append(sum(batch.reports for batch in its))
    more = [
        {
            **_named(key),
            "batches": sum(len(parcel.batches) for parcel in mine[key]),
            "reports": sum(batch.reports for parcel in mine[key] for batch in parcel.batches),
            "bytes": sum(len(batch.answer) for parcel in mine[key] for batch in parcel.batches),
            "seeded": any(parcel.seeded for parcel in mine[key]),
            "finished": any(parcel.finished for parcel in mine[key]),
            "code": next((parcel.code for parcel in mine[key] if parcel.code), None),
        }
        for key in sorted(mine)
    ]
    db.execute(_advance(db.dialect.name), more)
    count, campaign = (
        sum(len(parcel.batches) for its in mine.values() for parcel in its),
        parcels[0].campaign,
    )
    if count:
        db.execute(_MORE, {"its_campaign": campaign, "its_round": parcels[0].round, "more": count})
        known.added(db, campaign, count)
    return accepted


def _insert(db: Connection, rows: list[tuple[Any, ...]]) -> set[tuple[int, bytes]]:
    """Add batches, many in one statement, which frees the interpreter meanwhile; owner and name of
    those that were added.

    The statement returns none of them: of large batches SQLite would take three times as long.
    """
    row = f"({', '.join(['?' if db.dialect.name == 'sqlite' else '%s'] * len(_COLUMNS))})"
    added: set[tuple[int, bytes]] = set()
    for first in range(0, len(rows), MOST_ROWS):
        some = rows[first : first + MOST_ROWS]
        text = (
            f"INSERT INTO batches ({', '.join(_COLUMNS)}) VALUES {', '.join([row] * len(some))} ON "
            "CONFLICT DO NOTHING"
        )
        found = db.exec_driver_sql(text, tuple(itertools.chain.from_iterable(some)))
        every = found.rowcount == len(some)
        added |= {(one[2], one[4]) for one in some if every or _holds(db, one)}
    return added


def _holds(db: Connection, row: tuple[Any, ...]) -> bool:
    """Whether a row is stored, and not another of its name."""
    its = [batches.c[column] == value for column, value in zip(_COLUMNS, row, strict=True)]
    return db.execute(select(batches.c.id).where(*its)).first() is not None
