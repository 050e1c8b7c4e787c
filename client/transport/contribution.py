"""One owner's part in one campaign, from its first query to its last.

Every answer passes policy and ledger, and is sent until the aggregator holds it. An answer without
a receipt is sent again by this process or the next: the ledger is the queue.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from confide.client.explain import REASONS
from confide.client.ledger.ledger import Ledger
from confide.client.respond import Respondent
from confide.client.transport.delivery import Delivery, Taker
from confide.protocol.errors import ConfideError
from confide.protocol.plan import Plan, query_digest
from confide.protocol.wire import service_pb2
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from confide.protocol.wire.service import PIECE_BYTES
from confide.protocol.wire.splitting import split_answer

# Receipts after which the same bytes are not sent again: they are held, too late, or refused for
# their content. After any other receipt, which is about the aggregator's limits or state, an answer
# stays in the queue.
FINAL = {
    wire.Code.OK,
    wire.Code.DUPLICATE,
    wire.Code.LATE,
    wire.Code.SURPLUS,
    wire.Code.CLOSED,
    wire.Code.MALFORMED,
    wire.Code.WRONG_VERSION,
    wire.Code.WRONG_PLAN,
    wire.Code.OUT_OF_ALPHABET,
}


class Withheld(ConfideError):
    """The policy no longer allows an answer that was drawn earlier to leave."""


class Remote(Taker, Protocol):
    """The calls of an aggregator that a contribution makes."""

    def query(self) -> bytes | None: ...
    def watch(self) -> Iterator[service_pb2.Progress]: ...


# Another name for the type, because `Left` has a field `bytes`.
Digest = bytes


@dataclass
class Left:
    """What left this machine: reports and bytes that the aggregator holds, and receipts.

    `receipts` has the last receipt of every query; `withheld` counts answers drawn earlier that the
    policy, as it is now, keeps here.
    """

    reports: int = 0
    bytes: int = 0
    receipts: dict[Digest, int] = field(default_factory=dict)
    withheld: int = 0

    @property
    def rounds(self) -> Counter[str]:
        """How many rounds ended with each code; an aggregator may send any number."""
        names = dict(zip(wire.Code.values(), wire.Code.keys(), strict=True))
        return Counter(names.get(code, f"code {code}") for code in self.receipts.values())

    @property
    def well(self) -> bool:
        """Whether every round was answered, or its answer came after the round was over."""
        return not self.withheld and set(self.rounds) <= {
            "OK",
            "LATE",
            "SURPLUS",
            "CLOSED",
            "GROUP_TOO_SMALL",
        }

    @property
    def refused(self) -> bool:
        """Whether the policy refused this plan; it would refuse the next query, too."""
        return any(code in REASONS for code in self.receipts.values())


@dataclass
class Contribution:
    """One owner's part in one campaign."""

    remote: Remote
    respondent: Respondent
    ledger: Ledger
    plan: Plan
    plan_digest: bytes
    signed_plan: bytes
    left: Left = field(default_factory=Left)
    # Is told of every round that was answered.
    tell: Callable[[str], None] = lambda _: None

    def once(self) -> Left:
        """Send answers without a receipt, and answer the query that is open now."""
        self._take_part(self.remote.query())
        return self.left

    def watch(self) -> Left:
        """Answer every query until the campaign is over.

        A plan that the policy refuses is declined once.
        """
        rounds, last = 0, None
        for progress in self.remote.watch():
            if progress.taking and progress.rounds != rounds:
                query = self.remote.query()
                # A server process that does not know the new query yet is asked again later.
                if query not in (None, last):
                    rounds, last = progress.rounds, query
                    self._take_part(query)
            if self.left.refused:
                return self.left
        self._take_part(None)
        return self.left

    def _take_part(self, query: bytes | None) -> None:
        self.left.withheld = 0
        for digest, answer in self.ledger.unacknowledged(self.plan_digest):
            self._send(digest, answer)
        if query is not None and query_digest(query) not in self.left.receipts:
            self._send(query_digest(query), self.respondent.answer(self.signed_plan, query))
            self._tell(query)

    def _send(self, query: bytes, answer: bytes) -> None:
        pieces = list(split_answer(answer, self.plan, most=PIECE_BYTES))
        drawn, delivery = parse(wire.Answer, answer).code == wire.Code.OK, Delivery()
        try:
            delivery.send(self.remote, pieces, ask=lambda: self._ask(query, drawn))
        except Withheld:
            self.left.withheld += 1
            return
        finally:
            self.left.reports += delivery.reports
            self.left.bytes += delivery.bytes
        self.left.receipts[query] = delivery.code
        if delivery.code in FINAL:
            self.ledger.acknowledge(plan=self.plan_digest, query=query, code=delivery.code)

    def _tell(self, query: bytes) -> None:
        """Say how far the campaign is; nothing about records."""
        if self.left.receipts.get(query_digest(query)) == wire.Code.OK:
            number, in_all = parse(wire.Query, query).round + 1, self.plan.terms.rounds
            known = f" of {in_all}" if in_all else ""
            self.tell(f"round {number}{known}: answered, and the aggregator holds it")

    def _ask(self, query: bytes, drawn: bool) -> None:
        """Raise Withheld if the current policy does not let a drawn answer leave.

        It is asked before every try. Declining is always allowed.
        """
        if drawn and self.respondent.refusal(self.signed_plan, query) is not None:
            raise Withheld
