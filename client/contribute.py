"""Taking part in one campaign from its first query to its last: every answer passes policy and ledger, and is sent until held.

An answer that was spent and remembered but never acknowledged is sent again, by this process or the next: the ledger is the
queue.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from client.explain import REASONS
from client.ledger import Ledger
from client.respond import Respondent
from protocol import service_pb2
from protocol import wire_pb2 as wire
from protocol.campaign import Plan, parse
from protocol.messages import ID_BYTES, query_digest
from protocol.service import LARGEST_ANSWER
from protocol.splitting import split_answer

# How much travels as one message.
PIECE_BYTES = LARGEST_ANSWER // 4


class Remote(Protocol):
    """What a contribution needs of an aggregator."""

    def query(self) -> bytes | None: ...
    def submit(self, answers: Iterable[bytes]) -> wire.Receipt: ...
    def watch(self) -> Iterator[service_pb2.Progress]: ...


@dataclass
class Left:
    """What left this machine: reports and bytes that the aggregator holds, and how each round ended, by code."""

    reports: int = 0
    bytes: int = 0
    rounds: Counter[str] = field(default_factory=Counter)

    @property
    def well(self) -> bool:
        """Whether every round was answered, or came when the round was over."""
        return set(self.rounds) <= {"OK", "LATE", "SURPLUS", "CLOSED", "GROUP_TOO_SMALL"}

    @property
    def refused(self) -> bool:
        """Whether the policy does not allow this plan: it will not allow its next query either."""
        return any(wire.Code.Value(code) in REASONS for code in self.rounds)


@dataclass
class Contribution:
    """One owner's part in one campaign."""

    remote: Remote
    respondent: Respondent
    ledger: Ledger
    plan: Plan
    plan_digest: bytes
    signed_plan: bytes
    pause: Callable[[float], None] = time.sleep
    left: Left = field(default_factory=Left)
    _done: set[bytes] = field(default_factory=set)

    def once(self) -> Left:
        """Send what was never acknowledged, and answer the query that is open now."""
        self._resend()
        self._answer(self.remote.query())
        return self.left

    def watch(self) -> Left:
        """Answer every query until the campaign is over; a plan that the policy refuses is declined once."""
        self._resend()
        for progress in self.remote.watch():
            if progress.taking:
                self._answer(self.remote.query())
            if self.left.refused:
                break
        return self.left

    def _resend(self) -> None:
        for digest, answer in self.ledger.unacknowledged(self.plan_digest):
            self._send(digest, answer)

    def _answer(self, query: bytes | None) -> None:
        if query is not None and query_digest(query) not in self._done:
            self._send(query_digest(query), self.respondent.answer(self.signed_plan, query))

    def _send(self, query: bytes, answer: bytes) -> None:
        self._done.add(query)
        pieces = list(split_answer(answer, self.plan, most=PIECE_BYTES))
        sizes = [len(parse(wire.Answer, piece).batch.ids) // ID_BYTES for piece in pieces]
        while True:
            receipt = self.remote.submit(pieces)
            held = self._held(sizes, receipt.accepted)
            self.left.reports += sum(sizes[:held])
            self.left.bytes += sum(len(piece) for piece in pieces[:held])
            if receipt.code != wire.Code.RATE_LIMITED:
                break
            # The rest follows; what is held already need not be sent again.
            pieces, sizes = pieces[held:], sizes[held:]
            self.pause(1.0)
        self.left.rounds[wire.Code.Name(receipt.code)] += 1
        if receipt.code != wire.Code.UNAVAILABLE:
            self.ledger.acknowledge(plan=self.plan_digest, query=query, code=receipt.code)

    @staticmethod
    def _held(sizes: list[int], accepted: int) -> int:
        """How many pieces, from the first, the accepted reports fill."""
        count = 0
        while count < len(sizes) and sizes[count] <= accepted:
            accepted -= sizes[count]
            count += 1
        return count
