"""Messages that are sent until the other side holds them, or says what is wrong with them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from confide.client.transport.retry import Patience
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.splitting import message_reports

# Another name for the type, because `Delivery` has a field `bytes`.
Message = bytes


class Taker(Protocol):
    """The call that takes the messages of an answer."""

    patience: Patience

    def submit(self, answers: Iterable[bytes], *, ask: Callable[[], None]) -> wire.Receipt: ...


@dataclass
class Delivery:
    """What is held of an answer: reports and bytes; and the code of the last receipt."""

    reports: int = 0
    bytes: int = 0
    code: int = wire.Code.OK

    def send(self, remote: Taker, messages: Sequence[Message], *, ask: Callable[[], None]) -> None:
        """Send the messages of one answer; those that are held already need not be sent again.

        `ask` is called before every try, and raises an exception to end them.
        """
        pieces, sizes = list(messages), message_reports(messages)
        tries = remote.patience.tries()
        while True:
            receipt = remote.submit(pieces, ask=ask)
            held = _held(sizes, receipt.accepted + receipt.duplicates)
            self.reports += sum(sizes[:held])
            self.bytes += sum(len(piece) for piece in pieces[:held])
            self.code = receipt.code
            if receipt.code != wire.Code.RATE_LIMITED:
                return
            pieces, sizes = pieces[held:], sizes[held:]
            if held:
                tries = remote.patience.tries()
            tries.wait("the aggregator takes no more messages (RATE_LIMITED)")


def _held(sizes: list[int], reports: int) -> int:
    """How many of the first pieces are filled by so many reports that the other side holds."""
    count = 0
    while count < len(sizes) and sizes[count] <= reports:
        reports -= sizes[count]
        count += 1
    return count
