"""Queries and batches of reports as bytes, packed column by column. Untrusted batches are checked in `read_batch` alone."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol import wire_pb2 as wire
from protocol.campaign import VERSION, Plan, parse
from protocol.channel import Channel, LabelChannel
from protocol.channels import Bit, KaryRR, SubsetSelection
from protocol.errors import BadInput, Refused
from protocol.queries import BitQuery, LabelQuery, Query
from protocol.scores import check_probabilities

Array = NDArray[Any]

ID_BYTES = 16
MOST_REPORTS = 1_000_000
MOST_THRESHOLDS = 1 << 16


@dataclass(frozen=True)
class Batch:
    """The reports of one owner to one query, unpacked and within the channel's alphabet."""

    ids: Array
    reports: Array
    parts: Array | None = None
    probabilities: Array | None = None
    seeded: bool = False

    def __len__(self) -> int:
        return len(self.ids)


def write_query(query: Query, *, plan: bytes, round_: int) -> bytes:
    """A query of the campaign with this plan digest."""
    thresholds = query.thresholds if isinstance(query, BitQuery) else ()
    message = wire.Query(version=VERSION, plan=plan, round=round_, start=query.start, stop=query.stop, thresholds=thresholds)
    return message.SerializeToString(deterministic=True)


def read_query(data: bytes, *, plan: Plan, plan_digest: bytes) -> tuple[Query, int]:
    """The query and its round, if it belongs to this plan; else refused with a code."""
    message = parse(wire.Query, data)
    if message.plan != plan_digest:
        raise Refused(wire.Code.WRONG_PLAN)
    channel = plan.make_channel()
    try:
        if isinstance(channel, Bit):
            if len(message.thresholds) > MOST_THRESHOLDS:
                raise Refused(wire.Code.MALFORMED)
            return BitQuery(channel, message.start, message.stop, tuple(message.thresholds)), message.round
        if message.thresholds or not isinstance(channel, LabelChannel):
            raise Refused(wire.Code.MALFORMED)
        return LabelQuery(channel, message.start, message.stop), message.round
    except BadInput:
        raise Refused(wire.Code.MALFORMED) from None


def query_digest(data: bytes) -> bytes:
    """The name of a query in ledgers: the same bytes are the same query."""
    return hashlib.sha256(data).digest()


def write_batch(batch: Batch, *, channel: Channel, plan: bytes, round_: int) -> wire.ReportBatch:
    """Pack the columns of a batch."""
    return wire.ReportBatch(
        version=VERSION, plan=plan, round=round_, ids=np.ascontiguousarray(batch.ids).tobytes(),
        parts=b"" if batch.parts is None else batch.parts.astype("<u2").tobytes(),
        reports=_pack(batch.reports, channel),
        probabilities=b"" if batch.probabilities is None else batch.probabilities.astype("<f4").tobytes(),
        seeded=batch.seeded,
    )  # fmt: skip


def read_batch(message: wire.ReportBatch, *, query: Query, plan: bytes, round_: int) -> Batch:
    """Unpack a batch that answers this query; anything else is refused whole, with a code."""
    if message.version != VERSION:
        raise Refused(wire.Code.WRONG_VERSION)
    if message.plan != plan:
        raise Refused(wire.Code.WRONG_PLAN)
    if message.round != round_:
        raise Refused(wire.Code.WRONG_ROUND)
    n, rest = divmod(len(message.ids), ID_BYTES)
    if rest or n > MOST_REPORTS:
        raise Refused(wire.Code.MALFORMED)
    ids = np.frombuffer(message.ids, dtype=np.uint8).reshape(n, ID_BYTES)
    reports = _unpack(message.reports, query.channel, n)
    if isinstance(query, BitQuery):
        if message.probabilities:
            raise Refused(wire.Code.MALFORMED)
        parts = _column(message.parts, "<u2", n).astype(np.int64)
        if n and parts.max() >= len(query.thresholds):
            raise Refused(wire.Code.OUT_OF_ALPHABET)
        return Batch(ids, reports, parts=parts, seeded=message.seeded)
    if message.parts:
        raise Refused(wire.Code.MALFORMED)
    probabilities = _column(message.probabilities, "<f4", n * query.channel.k).reshape(n, query.channel.k)
    try:
        check_probabilities(probabilities)
    except BadInput:
        raise Refused(wire.Code.OUT_OF_ALPHABET) from None
    return Batch(ids, reports, probabilities=probabilities, seeded=message.seeded)


def _column(data: bytes, dtype: str, count: int) -> Array:
    if len(data) != count * np.dtype(dtype).itemsize:
        raise Refused(wire.Code.MALFORMED)
    return np.frombuffer(data, dtype=dtype)


def _pack(reports: Array, channel: Channel) -> bytes:
    if isinstance(channel, KaryRR):
        return reports.astype("<u2").tobytes()
    return np.packbits(reports.reshape(-1), bitorder="little").tobytes()


def _unpack(data: bytes, channel: Channel, n: int) -> Array:
    if isinstance(channel, KaryRR):
        reports = _column(data, "<u2", n)
        if n and reports.max() >= channel.k:
            raise Refused(wire.Code.OUT_OF_ALPHABET)
        return reports
    width = channel.k if isinstance(channel, LabelChannel) else 1
    packed = _column(data, "u1", -(-n * width // 8))
    flags = np.unpackbits(packed, bitorder="little").astype(np.bool_)
    if flags[n * width :].any():
        raise Refused(wire.Code.MALFORMED)
    flags = flags[: n * width]
    if not isinstance(channel, LabelChannel):
        return flags
    rows = flags.reshape(n, width)
    if isinstance(channel, SubsetSelection) and (rows.sum(axis=1) != channel.size).any():
        raise Refused(wire.Code.OUT_OF_ALPHABET)
    return rows
