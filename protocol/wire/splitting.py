"""Split a long answer into short ones.

Each piece is a complete answer, so any piece may be lost, repeated or arrive first.
"""

from collections.abc import Iterator

from confide.protocol.plan import Plan
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import cut
from confide.protocol.wire.encoding import ID_BYTES, VERSION, parse, serialise

# Cuts fall at multiples of this many reports, so that packed bits are cut between bytes.
_ROWS = 8
# An upper bound on the bytes of a piece besides its columns.
_HEADER_BYTES = 160
_DIGEST_BYTES = 32
_LAST_ROUND = 2**32 - 1


def split_answer(answer: bytes, plan: Plan, *, most: int) -> Iterator[bytes]:
    """Split an answer into answers of at most `most` bytes, or of eight reports.

    The same answer is always cut in the same way.
    """
    batch = parse(wire.Answer, answer).batch
    n = len(batch.ids) // ID_BYTES
    kind, widths = plan.terms.reports_message, plan.terms.row_bits(labels=plan.labels)
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
        )
        yield serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=piece))


def single_bytes(plan: Plan) -> int | None:
    """Return the most bytes of an answer with one report; None if owners answer as a whole.

    An answer with n reports has at most n times as many bytes.
    """
    kind = plan.terms.reports_message
    if kind is None:
        return None
    widths = plan.terms.row_bits(labels=plan.labels)
    batch = wire.ReportBatch(
        version=VERSION,
        plan=bytes(_DIGEST_BYTES),
        round=_LAST_ROUND,
        ids=bytes(ID_BYTES),
        seeded=True,
        body=serialise(kind(**{name: bytes(-(-bits // 8)) for name, bits in widths.items()})),
    )
    return wire.Answer(version=VERSION, code=wire.Code.OK, batch=batch).ByteSize()
