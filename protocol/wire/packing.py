"""Queries and batches of reports as bytes, packed column by column. Untrusted batches are checked
in `check_batch` alone."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.channels.base import Channel, LabelChannel
from confide.protocol.channels.kinds import Bit, KaryRR, SubsetSelection
from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.queries import (
    BitQuery,
    CountQuery,
    HistogramQuery,
    LabelQuery,
    OwnerQuery,
    Query,
    TrainingQuery,
)
from confide.protocol.plan import EXACT_COUNTS, MOST_RECORDS, NOISED_COUNTS, VERSION, Plan, parse
from confide.protocol.scores.classification import check_probabilities
from confide.protocol.wire import wire_pb2 as wire

Array = NDArray[Any]

ID_BYTES = 16
U2, F4, I8 = np.dtype("<u2"), np.dtype("<f4"), np.dtype("<i8")
MOST_REPORTS = 1_000_000
MOST_THRESHOLDS = 1 << 16
# How many standard deviations a noised count may lie outside what it counts.
DEVIATIONS = 8


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

    def only(self, places: Array | list[int]) -> "Batch":
        """The reports at these places."""
        return Batch(
            self.ids[places],
            self.reports[places],
            parts=None if self.parts is None else self.parts[places],
            probabilities=None if self.probabilities is None else self.probabilities[places],
            seeded=self.seeded,
        )


@dataclass(frozen=True)
class OwnerAnswer:
    """What one owner answers as a whole: a histogram; its number of records and its noised count;
    or its weights."""

    owner: bytes
    values: Array
    seeded: bool = False

    def __len__(self) -> int:
        return 1


def write_query(query: Query, *, plan: bytes, round_: int) -> bytes:
    """A query of the campaign with this plan digest."""
    weights = b""
    if isinstance(query, OwnerQuery):
        start, stop = 0.0, 1.0
        thresholds: tuple[float, ...] = (query.threshold,) if isinstance(query, CountQuery) else ()
        weights = query.weights.astype(F4).tobytes() if isinstance(query, TrainingQuery) else b""
    else:
        start, stop = query.start, query.stop
        thresholds = query.thresholds if isinstance(query, BitQuery) else ()
    message = wire.Query(
        version=VERSION,
        plan=plan,
        round=round_,
        start=start,
        stop=stop,
        thresholds=thresholds,
        weights=weights,
    )
    return message.SerializeToString(deterministic=True)


def read_query(data: bytes, *, plan: Plan, plan_digest: bytes) -> tuple[Query, int]:
    """The query and its round, if it belongs to this plan; else refused with a code."""
    message = parse(wire.Query, data)
    if message.plan != plan_digest:
        raise Refused(wire.Code.WRONG_PLAN)
    try:
        if plan.central or plan.training is not None:
            return _owner_query(message, plan), message.round
        if message.weights:
            raise Refused(wire.Code.MALFORMED)
        channel = plan.make_channel()
        if isinstance(channel, Bit):
            if len(message.thresholds) > MOST_THRESHOLDS:
                raise Refused(wire.Code.MALFORMED)
            return BitQuery(
                channel, message.start, message.stop, tuple(message.thresholds)
            ), message.round
        if message.thresholds or not isinstance(channel, LabelChannel):
            raise Refused(wire.Code.MALFORMED)
        return LabelQuery(channel, message.start, message.stop), message.round
    except BadInput:
        raise Refused(wire.Code.MALFORMED) from None


def _owner_query(message: wire.Query, plan: Plan) -> OwnerQuery:
    if (message.start, message.stop) != (0.0, 1.0) or message.round >= plan.rounds:
        raise Refused(wire.Code.MALFORMED)
    if plan.training is not None and not message.thresholds:
        return TrainingQuery(_weights(message.weights, plan.training.size))
    if plan.channel == EXACT_COUNTS and not message.thresholds and not message.weights:
        return HistogramQuery(plan.bins)
    if plan.channel == NOISED_COUNTS and len(message.thresholds) == 1 and not message.weights:
        return CountQuery(message.thresholds[0], plan.noise_variance)
    raise Refused(wire.Code.MALFORMED)


def _weights(data: bytes, size: int) -> Array:
    weights = _column(data, F4, size)
    if not np.isfinite(weights).all():
        raise Refused(wire.Code.OUT_OF_ALPHABET)
    return weights


def query_digest(data: bytes) -> bytes:
    """The name of a query in ledgers: the same bytes are the same query."""
    return hashlib.sha256(data).digest()


def write_batch(batch: Batch, *, channel: Channel, plan: bytes, round_: int) -> wire.ReportBatch:
    """Pack the columns of a batch."""
    return wire.ReportBatch(
        version=VERSION,
        plan=plan,
        round=round_,
        ids=np.ascontiguousarray(batch.ids).tobytes(),
        parts=b"" if batch.parts is None else batch.parts.astype(U2).tobytes(),
        reports=_pack(batch.reports, channel),
        probabilities=b""
        if batch.probabilities is None
        else batch.probabilities.astype(F4).tobytes(),
        seeded=batch.seeded,
    )


def write_owner_answer(answer: OwnerAnswer, *, plan: bytes, round_: int) -> wire.ReportBatch:
    """Pack an owner's counts (integers) or weights (floats)."""
    whole = answer.values.dtype.kind == "i"
    return wire.ReportBatch(
        version=VERSION,
        plan=plan,
        round=round_,
        ids=answer.owner,
        seeded=answer.seeded,
        counts=answer.values.astype(I8).tobytes() if whole else b"",
        weights=b"" if whole else answer.values.astype(F4).tobytes(),
    )


def read_owner_answer(
    message: wire.ReportBatch,
    *,
    query: OwnerQuery,
    plan: bytes,
    round_: int,
    most: int = MOST_RECORDS,
) -> OwnerAnswer:
    """Unpack what an owner of at most so many records answers as a whole; anything that cannot be
    an answer to this query is refused with a code.

    A noised count of n records lies in [-8 sigma, n + 8 sigma]: an honest one outside has a
    probability below 2 e^-32, 3e-14 (discrete Gaussians are sub-Gaussian, Canonne, Kamath, Steinke
    2020).
    """
    _check_envelope(message, plan=plan, round_=round_)
    if len(message.ids) != ID_BYTES or message.parts or message.reports or message.probabilities:
        raise Refused(wire.Code.MALFORMED)
    if isinstance(query, TrainingQuery):
        if message.counts:
            raise Refused(wire.Code.MALFORMED)
        return OwnerAnswer(
            message.ids, _weights(message.weights, query.weights.size), message.seeded
        )
    if message.weights:
        raise Refused(wire.Code.MALFORMED)
    exact = isinstance(query, HistogramQuery)
    counts = _column(
        message.counts, I8, query.bins if isinstance(query, HistogramQuery) else 2
    ).astype(np.int64)
    owned = counts if exact else counts[:1]
    if owned.min() < 0 or owned.max() > most or int(owned.sum()) > most:
        raise Refused(wire.Code.OUT_OF_ALPHABET)
    if isinstance(query, CountQuery):
        n, count = (int(number) for number in counts)
        beyond = max(-count, count - n, 0)
        if beyond**2 > DEVIATIONS**2 * query.variance:
            raise Refused(wire.Code.OUT_OF_ALPHABET)
    return OwnerAnswer(message.ids, counts, message.seeded)


def check_batch(
    message: wire.ReportBatch, *, query: BitQuery | LabelQuery, plan: bytes, round_: int
) -> int:
    """How many reports a batch holds that answers this query; anything else is refused whole, with
    a code."""
    _check_envelope(message, plan=plan, round_=round_)
    if message.counts or message.weights:
        raise Refused(wire.Code.MALFORMED)
    n, rest = divmod(len(message.ids), ID_BYTES)
    if rest or n > MOST_REPORTS:
        raise Refused(wire.Code.MALFORMED)
    _check_distinct(message.ids)
    _check_reports(message.reports, query.channel, n)
    if isinstance(query, BitQuery):
        if message.probabilities:
            raise Refused(wire.Code.MALFORMED)
        _check_whole(message.parts, n, below=len(query.thresholds))
        return n
    if message.parts:
        raise Refused(wire.Code.MALFORMED)
    try:
        check_probabilities(_rows(message.probabilities, n, query.channel.k))
    except BadInput:
        raise Refused(wire.Code.OUT_OF_ALPHABET) from None
    return n


def read_batch(
    message: wire.ReportBatch, *, query: BitQuery | LabelQuery, plan: bytes, round_: int
) -> Batch:
    """Unpack a batch that passes the check."""
    n = check_batch(message, query=query, plan=plan, round_=round_)
    ids = np.frombuffer(message.ids, dtype=np.uint8).reshape(n, ID_BYTES)
    reports = _unpack(message.reports, query.channel, n)
    if isinstance(query, BitQuery):
        return Batch(ids, reports, parts=_column(message.parts, U2, n), seeded=message.seeded)
    return Batch(
        ids,
        reports,
        probabilities=_rows(message.probabilities, n, query.channel.k),
        seeded=message.seeded,
    )


def _check_envelope(message: wire.ReportBatch, *, plan: bytes, round_: int) -> None:
    if message.version != VERSION:
        raise Refused(wire.Code.WRONG_VERSION)
    if message.plan != plan:
        raise Refused(wire.Code.WRONG_PLAN)
    if message.round != round_:
        raise Refused(wire.Code.WRONG_ROUND)


def _check_distinct(ids: bytes) -> None:
    """No id stands twice in a batch. Ids are hashes: where halves of them differ there is no need
    to compare the whole."""
    halves = np.frombuffer(ids, dtype=np.uint64)
    first = np.sort(halves[::2])
    if (first[1:] == first[:-1]).any():
        pairs = halves.reshape(-1, 2)
        ordered = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        if (ordered[1:] == ordered[:-1]).all(axis=1).any():
            raise Refused(wire.Code.MALFORMED)


def _check_reports(data: bytes, channel: Channel, n: int) -> None:
    """Labels are below k; of flags, those beyond the last report are off, and of a subset, as many
    are on as it has members."""
    if isinstance(channel, KaryRR):
        _check_whole(data, n, below=channel.k)
        return
    flags = n * _width(channel)
    if len(data) != -(-flags // 8) or (flags % 8 and data[-1] >> flags % 8):
        raise Refused(wire.Code.MALFORMED)
    if (
        isinstance(channel, SubsetSelection)
        and (_unpack(data, channel, n).sum(axis=1) != channel.size).any()
    ):
        raise Refused(wire.Code.OUT_OF_ALPHABET)


def _check_whole(data: bytes, n: int, *, below: int) -> None:
    numbers = _column(data, U2, n)
    # What `max` does, without the way there.
    if n and np.maximum.reduce(numbers) >= below:
        raise Refused(wire.Code.OUT_OF_ALPHABET)


def _column(data: bytes, dtype: np.dtype[Any], count: int) -> Array:
    if len(data) != count * dtype.itemsize:
        raise Refused(wire.Code.MALFORMED)
    return np.frombuffer(data, dtype=dtype)


def _rows(data: bytes, n: int, k: int) -> Array:
    return _column(data, F4, n * k).reshape(n, k)


def _width(channel: Channel) -> int:
    return channel.k if isinstance(channel, LabelChannel) else 1


def _pack(reports: Array, channel: Channel) -> bytes:
    if isinstance(channel, KaryRR):
        return reports.astype(U2).tobytes()
    return np.packbits(reports.reshape(-1), bitorder="little").tobytes()


def _unpack(data: bytes, channel: Channel, n: int) -> Array:
    if isinstance(channel, KaryRR):
        return _column(data, U2, n)
    width, packed = _width(channel), np.frombuffer(data, dtype=np.uint8)
    flags = np.unpackbits(packed, count=n * width, bitorder="little").view(np.bool_)
    return flags.reshape(n, width) if isinstance(channel, LabelChannel) else flags
