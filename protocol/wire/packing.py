"""Batches of reports as bytes. Untrusted batches are checked in `check_batch` alone."""

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
    """How many reports a batch holds that answers this query, of an owner with at most so many
    records; anything else is refused whole, with a code."""
    if message.version != VERSION:
        raise Refused(wire.Code.WRONG_VERSION)
    if message.plan != plan:
        raise Refused(wire.Code.WRONG_PLAN)
    if message.round != round_:
        raise Refused(wire.Code.WRONG_ROUND)
    n, rest = divmod(len(message.ids), ID_BYTES)
    if rest or n > MOST_REPORTS or (query.whole and n != 1):
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
    """Unpack a batch that passes the check."""
    n = check_batch(message, query=query, plan=plan, round_=round_, most=most)
    ids = np.frombuffer(message.ids, dtype=np.uint8).reshape(n, ID_BYTES)
    return Batch(ids, query.unpack(message.body, n), message.seeded, sender)


def _check_distinct(ids: bytes) -> None:
    """No id stands twice in a batch. Ids are hashes: where halves of them differ there is no need
    to compare the whole."""
    halves = np.frombuffer(ids, dtype=np.uint64)
    if any_twice(halves[::2]):
        pairs = halves.reshape(-1, 2)
        ordered = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        if (ordered[1:] == ordered[:-1]).all(axis=1).any():
            raise Refused(wire.Code.MALFORMED)
