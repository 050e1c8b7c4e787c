"""Queries and answers as messages of Flower."""

import logging
import time
from collections.abc import Iterator
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from confide.aggregator.campaigns.admission import Sent
from confide.protocol.simulated.settings import CONTENT

log = logging.getLogger("flwr")

# Flower's codes for a node that is gone or did not answer in time; whether one comes before the
# timeout is chance.
MISSING = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)

# Seconds between two looks for answers: at least the first, at most the second, and in between a
# quarter of the time that a round has taken. Flower's own loop looks at a SuperLink every three
# seconds, which is longer than many rounds take.
PAUSES = (0.1, 3.0)


class Asking:
    """Sends a query to every node, and yields the answers that come back before the timeout.

    The answers of other nodes are missing.
    """

    def __init__(
        self, grid: Grid, nodes: list[int], shared: dict[str, bytes], *, timeout: float
    ) -> None:
        """`shared` goes with every query: the signed plan, and a model that owners do not hold."""
        self._grid, self._nodes, self._shared, self._timeout = grid, nodes, shared, timeout
        # The number of every node of a simulation that has answered.
        self.owners: dict[bytes, int] = {}

    def __call__(self, query: bytes) -> Iterator[Sent]:
        asked: dict[str, Any] = {**self._shared, "query": query}
        content = RecordDict({CONTENT: ConfigRecord(asked)})
        messages = [
            Message(content=content, message_type="query", dst_node_id=node, ttl=self._timeout)
            for node in self._nodes
        ]
        for reply in self._replies(messages):
            answer = read_reply(reply)
            if answer is not None:
                sender = reply.metadata.src_node_id.to_bytes(8, "big")
                number = None if reply.has_error() else _content(reply).get("owner")
                if isinstance(number, int):
                    self.owners[sender] = number
                yield Sent(sender, answer)

    def _replies(self, messages: list[Message]) -> Iterator[Message]:
        """Yield the replies as they come, until all are there or the time is over."""
        began = time.monotonic()
        waiting = set(self._grid.push_messages(messages))
        while waiting and (taken := time.monotonic() - began) < self._timeout:
            found = list(self._grid.pull_messages(waiting))
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            yield from found
            if waiting:
                time.sleep(min(max(PAUSES[0], taken / 4), PAUSES[1], self._timeout - taken))


def read_reply(reply: Message) -> bytes | None:
    """The answer in a reply, or None if Flower or the node reports that there is none.

    If the node failed, the answer returned is malformed.
    """
    if reply.has_error():
        if reply.error.code in MISSING:
            return None
        log.warning(
            "confide: node %d answers with an error: %s",
            reply.metadata.src_node_id,
            reply.error.reason,
        )
        return b"\xff"
    if not reply.content:
        return None
    found = _content(reply).get("answer")
    return found if isinstance(found, bytes) else b"\xff"


def _content(reply: Message) -> Any:
    """What a reply says, by name; nothing if it says something else."""
    record: Any = reply.content.get(CONTENT)
    return {} if record is None else record
