"""Batches of reports as bytes; `check_batch` is the only function that checks untrusted batches."""

import numpy as np

from confide.protocol.errors import Refused
from confide.protocol.methods.base import MOST_RECORDS, Batch, Query
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.distinct import any_twice
from confide.protocol.wire.encoding import ID_BYTES, VERSION

MOST_REPORTS = 1_000_000


def write_batch(batch: Batch, *, query: Query, plan: bytes, round_: int) -> wire.ReportBatch:
    """Pack a batch that answers a query."""
    return wire.ReportBatch(
        version=VERSION,
        plan=plan,
        round=round_,
        ids=np.ascontiguousarray(batch.ids).tobytes(),
        seeded=batch.seeded,
        body=query.pack(batch.columns),
    )


def check_batch(
    message: wire.ReportBatch, *, query: Query, plan: bytes, round_: int, most: int = MOST_RECORDS
) -> int:
    """Return the number of reports of a batch that answers this query.

    A batch that does not, or that an owner with at most so many records cannot send, is refused as
    a whole, with a code.
    """
    if message.version != VERSION:
        raise Refused(wire.Code.WRONG_VERSION)
    if message.plan != plan:
        raise Refused(wire.Code.WRONG_PLAN)
    if message.round != round_:
        raise Refused(wire.Code.WRONG_ROUND)
    n, rest = divmod(len(message.ids), ID_BYTES)
    piece = message.body_bytes or message.body_start
    if rest or n > MOST_REPORTS or (query.whole and n != 1) or piece:
        raise Refused(wire.Code.MALFORMED)
    _check_distinct(message.ids)
    query.check(message.body, n, most=most)
    return n


def read_batch(
    message: wire.ReportBatch,
    *,
    query: Query,
    plan: bytes,
    round_: int,
    most: int = MOST_RECORDS,
    sender: bytes = b"",
) -> Batch:
    """Unpack a batch that passed the check."""
    n = check_batch(message, query=query, plan=plan, round_=round_, most=most)
    ids = np.frombuffer(message.ids, dtype=np.uint8).reshape(n, ID_BYTES)
    return Batch(ids, query.unpack(message.body, n), message.seeded, sender)


def _check_distinct(ids: bytes) -> None:
    """Refuse a batch in which an id occurs twice.

    Ids are hashes: if halves of them differ, the whole ids need not be compared.
    """
    halves = np.frombuffer(ids, dtype=np.uint64)
    if any_twice(halves[::2]):
        pairs = halves.reshape(-1, 2)
        ordered = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        if (ordered[1:] == ordered[:-1]).all(axis=1).any():
            raise Refused(wire.Code.MALFORMED)
