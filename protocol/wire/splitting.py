"""Split a long answer into short ones.

Reports are split into answers that are complete, so any of them may be lost, repeated or arrive
first. The answer of an owner as a whole is cut into pieces that mean something only together.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from confide.protocol.errors import Refused
from confide.protocol.plan import Plan
from confide.protocol.sealing import AROUND
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import cut
from confide.protocol.wire.encoding import ID_BYTES, VERSION, parse, serialise

# Cuts fall at multiples of this many reports, so that packed bits are cut between bytes.
_ROWS = 8
# An upper bound on the bytes of a piece besides its columns.
_HEADER_BYTES = 160
_DIGEST_BYTES = 32
_LAST_ROUND = 2**32 - 1
# The most bytes around the one column of an answer as a whole.
_FIELD_BYTES = 16
# Pieces but the last have at least this size, so that an answer has few of them.
LEAST_PIECE = 1 << 19


def split_answer(answer: bytes, plan: Plan, *, most: int) -> Iterator[bytes]:
    """Split an answer into answers of at most `most` bytes, or of eight reports.

    The same answer is always cut in the same way.
    """
    batch = parse(wire.Answer, answer).batch
    if plan.terms.answer_bytes and len(answer) > most:
        yield from _pieces(batch, most - _HEADER_BYTES)
        return
    n = len(batch.ids) // ID_BYTES
    kind, widths = report_columns(plan)
    if len(answer) <= most or n <= _ROWS or kind is None:
        yield answer
        return
    body = parse(kind, batch.body)
    rows = max(_ROWS, (most - _HEADER_BYTES) * n // len(answer) // _ROWS * _ROWS)
    for first in range(0, n, rows):
        last = min(n, first + rows)
        columns = {
            name: cut(getattr(body, name), bits=bits, first=first, last=last)
            for name, bits in widths.items()
        }
        piece = wire.ReportBatch(
            version=batch.version,
            plan=batch.plan,
            round=batch.round,
            ids=cut(batch.ids, bits=8 * ID_BYTES, first=first, last=last),
            seeded=batch.seeded,
            body=serialise(kind(**columns)),
            handover=batch.handover if batch.HasField("handover") else None,
        )
        yield serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=piece))


def report_columns(plan: Plan) -> tuple[type[Any] | None, dict[str, int]]:
    """Return the message of a plan's reports, and the bits per report of every column of it.

    Reports that a shuffler hides are sealed one by one. Answers as a whole have no columns.
    """
    if plan.shuffling is not None:
        return wire.SealedReports, {"sealed": 8 * (plan.terms.row_bytes + AROUND)}
    return plan.terms.reports_message, plan.terms.row_bits(labels=plan.labels)


def _pieces(batch: wire.ReportBatch, size: int) -> Iterator[bytes]:
    """Cut the body of a batch into pieces of `size` bytes, each in an answer of its own."""
    body = batch.body
    for start in range(0, len(body), size):
        piece = wire.ReportBatch(
            version=batch.version,
            plan=batch.plan,
            round=batch.round,
            ids=batch.ids,
            seeded=batch.seeded,
            body=body[start : start + size],
            body_bytes=len(body),
            body_start=start,
        )
        yield serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=piece))


def message_reports(messages: Sequence[bytes]) -> list[int]:
    """Return how many reports the aggregator holds with each message of a split answer.

    All pieces of one body are one report. It stands at the first piece, because none of them is
    held before all are.
    """
    batches = [parse(wire.Answer, message).batch for message in messages]
    return [len(batch.ids) // ID_BYTES if batch.body_start == 0 else 0 for batch in batches]


class Pieces:
    """Joins the pieces of an answer; the receiver checks the joined answer."""

    def __init__(self) -> None:
        self._first: wire.ReportBatch | None = None
        self._bodies: list[bytes] = []
        self._length = 0

    @property
    def begun(self) -> bool:
        return self._first is not None

    def add(self, batch: wire.ReportBatch, *, most: int) -> bytes | None:
        """Add the next piece; return the answer if it is the last one.

        A piece that does not follow the earlier ones, that says something else than the first, or
        that is shorter than LEAST_PIECE and not the last is refused with a code; so is a body of
        more than `most` bytes.
        """
        if batch.body_bytes > most + _FIELD_BYTES:
            raise Refused(wire.Code.TOO_LARGE)
        first = self._first or batch
        end = batch.body_start + len(batch.body)
        if (
            batch.body_start != self._length
            or batch.body_bytes != first.body_bytes
            or _head(batch) != _head(first)
            or end > batch.body_bytes
            or (end < batch.body_bytes and len(batch.body) < LEAST_PIECE)
            or not batch.body
        ):
            raise Refused(wire.Code.MALFORMED)
        self._first, self._length = first, end
        self._bodies.append(batch.body)
        if end < batch.body_bytes:
            return None
        whole = wire.ReportBatch(**_head(first), body=b"".join(self._bodies))
        self._first, self._bodies, self._length = None, [], 0
        return serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=whole))


def _head(batch: wire.ReportBatch) -> dict[str, Any]:
    names = "version", "plan", "round", "ids", "seeded"
    return {name: getattr(batch, name) for name in names}


def single_bytes(plan: Plan) -> int | None:
    """Return the most bytes of an answer with one report; None if owners answer as a whole.

    An answer with n reports has at most n times as many bytes.
    """
    kind, widths = report_columns(plan)
    if kind is None:
        return None
    batch = wire.ReportBatch(
        version=VERSION,
        plan=bytes(_DIGEST_BYTES),
        round=_LAST_ROUND,
        ids=bytes(ID_BYTES),
        seeded=True,
        body=serialise(kind(**{name: bytes(-(-bits // 8)) for name, bits in widths.items()})),
    )
    return wire.Answer(version=VERSION, code=wire.Code.OK, batch=batch).ByteSize()
