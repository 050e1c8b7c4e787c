"""What is handed in, and how it is stored: batches once, with how far their owner is, and refusals counted.

Everything here happens within the caller's transaction. Rows are written in one order everywhere, so that two processes never
wait for each other.
"""

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select

from aggregator.schema import batches, parts, queries, rejections
from aggregator.store import DEADLINE, insert
from protocol import wire_pb2 as wire

# Campaign, round and owner.
_Key = tuple[str, int, int]
# What one statement takes at most.
MOST_ROWS = 64


class Packed(NamedTuple):
    """One batch as it is stored."""

    digest: bytes
    reports: int
    answer: bytes


@dataclass(frozen=True)
class Parcel:
    """Batches of one owner for one round, stored together or not at all; `finished` when no more will come.

    `most` is how many reports, and how many batches, the round takes of the owner in all.
    """

    campaign: str
    round: int
    owner: int
    batches: Sequence[Packed] = ()
    seeded: bool = False
    finished: bool = False
    code: str | None = None
    most: int = sys.maxsize

    @property
    def key(self) -> _Key:
        return self.campaign, self.round, self.owner


class Rejection(NamedTuple):
    """Something that was refused: counted, and nothing else."""

    campaign: str
    owner: str
    code: str
    times: int = 1


# Statements are made once: that takes longer than running them.
_DOOR = (
    select(queries.c.closed, queries.c.because)
    .where(queries.c.campaign == bindparam("campaign"), queries.c.round == bindparam("round"))
    .with_for_update(read=True)
)
# Held until the transaction ends, so that two processes do not both take what the round takes of an owner.
_SENT = (
    select(parts.c.batches, parts.c.reports)
    .where(
        parts.c.campaign == bindparam("campaign"), parts.c.round == bindparam("round"), parts.c.owner == bindparam("owner")
    )
    .with_for_update()
)  # fmt: skip
# Of an owner that has sent nothing yet, and whose first parcels were refused, nothing stays.
_FORGET = delete(parts).where(
    parts.c.campaign == bindparam("campaign"), parts.c.round == bindparam("round"), parts.c.owner == bindparam("owner"),
    parts.c.batches == 0, ~parts.c.finished,
)  # fmt: skip


@cache
def _advance(kind: str) -> Any:
    row = insert(kind, parts)
    more = {
        "batches": parts.c.batches + row.excluded.batches,
        "reports": parts.c.reports + row.excluded.reports,
        "seeded": parts.c.seeded | row.excluded.seeded,
        "finished": parts.c.finished | row.excluded.finished,
        "code": row.excluded.code,
    }
    return row.on_conflict_do_update(index_elements=["campaign", "round", "owner"], set_=more)


@cache
def _begin(kind: str) -> Any:
    nothing = {"batches": 0, "reports": 0, "seeded": False, "finished": False}
    return insert(kind, parts).values(nothing).on_conflict_do_nothing()


@cache
def _refuse(kind: str) -> Any:
    row = insert(kind, rejections)
    more = {"times": rejections.c.times + row.excluded.times}
    return row.on_conflict_do_update(index_elements=["campaign", "owner", "code"], set_=more)


def store_all(db: Connection, items: Sequence[Parcel | Rejection]) -> list[int]:
    """Write everything whose round is open, and say of each item what became of it."""
    codes: list[int] = [wire.Code.OK] * len(items)
    mine: dict[_Key, list[Parcel]] = {}
    places: dict[_Key, list[int]] = {}
    for place, item in enumerate(items):
        if isinstance(item, Parcel):
            mine.setdefault(item.key, []).append(item)
            places.setdefault(item.key, []).append(place)
    doors = {key: _door(db, *key) for key in sorted({key[:2] for key in mine})}
    admitted = []
    # In one order everywhere, so that two processes never wait for each other.
    for key in sorted(mine):
        door, found = doors[key[:2]], _codes(db, mine[key], doors[key[:2]])
        for place, parcel, code in zip(places[key], mine[key], found, strict=True):
            codes[place] = code
            if code == door == wire.Code.OK:
                admitted.append(parcel)
        if door == wire.Code.OK and wire.Code.OK not in found:
            db.execute(_FORGET, _named(key))
    if admitted:
        _store(db, admitted)
    refused = summed(items)
    if refused:
        db.execute(_refuse(db.dialect.name), [rejection._asdict() for rejection in refused])
    return codes


def summed(items: Iterable[Parcel | Rejection]) -> list[Rejection]:
    """The rejections, one of a kind, in one order everywhere, as above."""
    times: Counter[tuple[str, str, str]] = Counter()
    for item in items:
        if isinstance(item, Rejection):
            times[item[:3]] += item.times
    return [Rejection(*kind, count) for kind, count in sorted(times.items())]


def _door(db: Connection, campaign: str, number: int) -> int:
    """Whether a round is open, held open until the transaction ends."""
    found = db.execute(_DOOR, {"campaign": campaign, "round": number}).first()
    if found is None:
        return wire.Code.WRONG_ROUND
    if found.closed is None:
        return wire.Code.OK
    return wire.Code.LATE if found.because == DEADLINE else wire.Code.SURPLUS


def _codes(db: Connection, parcels: Sequence[Parcel], door: int) -> list[int]:
    """What the parcels of one owner for one round are answered: batches that were stored are taken in whenever they come again,
    others while the door is open, until the owner has sent as much as the round takes of it."""
    count = _Count(0, 0)
    if door == wire.Code.OK:
        count = _sent(db, parcels[0].key)
        all_new = count.plus(batch for parcel in parcels for batch in parcel.batches)
        if max(all_new) <= min(parcel.most for parcel in parcels):
            return [wire.Code.OK] * len(parcels)
    known = {name for parcel in parcels for name in _stored(db, parcel)}
    codes = []
    for parcel in parcels:
        new = {batch.digest: batch for batch in parcel.batches if batch.digest not in known}
        more = count.plus(new.values())
        code = wire.Code.OK if parcel.batches and not new else door
        if new and door == wire.Code.OK and max(more) > parcel.most:
            code = wire.Code.SURPLUS
        if code == wire.Code.OK:
            count = more
            known |= set(new)
        codes.append(code)
    return codes


def _sent(db: Connection, key: _Key) -> "_Count":
    """What an owner has sent to a round, which nobody changes until the transaction ends: for that, a row must be there."""
    while (found := db.execute(_SENT, _named(key)).first()) is None:
        db.execute(_begin(db.dialect.name), _named(key))
    return _Count(*found)


def _named(key: _Key) -> dict[str, str | int]:
    return dict(zip(("campaign", "round", "owner"), key, strict=True))


class _Count(NamedTuple):
    """What an owner has sent to a round."""

    batches: int
    reports: int

    def plus(self, more: Iterable[Packed]) -> "_Count":
        sizes = [batch.reports for batch in more]
        return _Count(self.batches + len(sizes), self.reports + sum(sizes))


def _stored(db: Connection, parcel: Parcel) -> Iterable[bytes]:
    """The names of those batches of a parcel that are stored."""
    names = {batch.digest for batch in parcel.batches}
    mine = (batches.c.campaign == parcel.campaign) & (batches.c.round == parcel.round) & (batches.c.owner == parcel.owner)
    return db.execute(select(batches.c.digest).where(mine, batches.c.digest.in_(names))).scalars() if names else ()


def _store(db: Connection, parcels: list[Parcel]) -> None:
    """Add the batches that are new, and how far each owner is after these parcels."""
    # In one order everywhere, as above.
    rows = sorted((*parcel.key, batch.reports, batch.digest, batch.answer) for parcel in parcels for batch in parcel.batches)
    new: Counter[_Key] = Counter()
    reports: Counter[_Key] = Counter()
    # Batches of equally many reports go together: how many of them were new then says how many reports were.
    for (*owner, each), group in itertools.groupby(rows, key=lambda row: row[:4]):
        key, found = tuple(owner), _insert(db, list(group))
        new[key] += found
        reports[key] += found * each
    mine = {key: [parcel for parcel in parcels if parcel.key == key] for key in sorted({parcel.key for parcel in parcels})}
    more = [
        {
            **_named(key), "batches": new[key], "reports": reports[key],
            "seeded": any(parcel.seeded for parcel in its), "finished": any(parcel.finished for parcel in its),
            "code": next((parcel.code for parcel in its if parcel.code), None),
        }
        for key, its in mine.items()
    ]  # fmt: skip
    db.execute(_advance(db.dialect.name), more)


def _insert(db: Connection, rows: list[tuple[Any, ...]]) -> int:
    """Add batches, and say how many of them were not there: many in one statement, which frees the interpreter meanwhile."""
    columns = "campaign", "round", "owner", "reports", "digest", "answer"
    row = f"({', '.join(['?' if db.dialect.name == 'sqlite' else '%s'] * len(columns))})"
    new = 0
    for first in range(0, len(rows), MOST_ROWS):
        some = rows[first : first + MOST_ROWS]
        text = f"INSERT INTO batches ({', '.join(columns)}) VALUES {', '.join([row] * len(some))} ON CONFLICT DO NOTHING"
        new += db.exec_driver_sql(text, tuple(itertools.chain.from_iterable(some))).rowcount
    return new
