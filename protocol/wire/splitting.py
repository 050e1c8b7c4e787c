"""Long answers cut into short ones: each a whole answer of its own, so any may be lost, repeated or
come first."""

from collections.abc import Iterator

from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.kinds import KaryRR
from confide.protocol.plan import VERSION, Plan, parse
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.packing import ID_BYTES

# Cuts fall between multiples of this many reports, so that packed bits are cut between bytes.
_ROWS = 8
# Above what a piece has besides its columns.
_HEADER_BYTES = 128


def split_answer(answer: bytes, plan: Plan, *, most: int) -> Iterator[bytes]:
    """The answer as answers of at most `most` bytes, or of eight reports. The same answer is always
    cut the same way."""
    batch = parse(wire.Answer, answer).batch
    n = len(batch.ids) // ID_BYTES
    if len(answer) <= most or n <= _ROWS or plan.central:
        yield answer
        return
    rows = max(_ROWS, (most - _HEADER_BYTES) * n // len(answer) // _ROWS * _ROWS)
    bits = _bits(plan)
    for first in range(0, n, rows):
        last = min(n, first + rows)

        def part(column: bytes, width: int, first: int = first, last: int = last) -> bytes:
            return column[first * width // 8 : -(-last * width // 8)] if column else b""

        piece = wire.ReportBatch(
            version=batch.version,
            plan=batch.plan,
            round=batch.round,
            ids=part(batch.ids, 8 * ID_BYTES),
            parts=part(batch.parts, 16),
            reports=part(batch.reports, bits),
            probabilities=part(batch.probabilities, 32 * plan.labels),
            seeded=batch.seeded,
        )
        yield wire.Answer(version=VERSION, code=wire.Code.OK, batch=piece).SerializeToString(
            deterministic=True
        )


def _bits(plan: Plan) -> int:
    channel = plan.make_channel()
    if isinstance(channel, KaryRR):
        return 16
    return channel.k if isinstance(channel, LabelChannel) else 1
