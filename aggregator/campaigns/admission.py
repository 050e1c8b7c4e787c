"""Admits or rejects the answers of a campaign, and counts both; no other module decides this.

A rejected answer is data, not an error: it is counted under its code and has no effect. A report id
counts once in a campaign, so an answer that arrives twice adds nothing.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from confide.aggregator.campaigns.allowance import (
    UNLIMITED,
    Allowance,
    Counted,
    allowance,
    most_in_campaign,
)
from confide.aggregator.campaigns.report_ids import ReportIds
from confide.aggregator.campaigns.report_scores import report_scores
from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.base import MOST_RECORDS, Batch, Query, Tally
from confide.protocol.plan import Plan, digest
from confide.protocol.shuffling import Shuffling, check_handover
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION, parse
from confide.protocol.wire.packing import check_batch, read_batch

# Read once, because looking it up takes longer than comparing it.
OK = wire.Code.OK


class Sent(NamedTuple):
    """An answer and its sender: the node or token it came from, not the name it gives itself."""

    sender: bytes
    answer: bytes


def read_answer(
    sent: Sent, *, query: Query, plan: bytes, round_: int, most: int = MOST_RECORDS
) -> Batch:
    """Read the batch in an answer to this query, from an owner with at most `most` records.

    Any other answer is refused with a code: the owner's own code, if it gave one.
    """
    batch = _batch(sent.answer, plan=plan, round_=round_)
    return read_batch(batch, query=query, plan=plan, round_=round_, most=most, sender=sent.sender)


class Checked(NamedTuple):
    """The contents of an answer: the number of reports, whether they are seeded, and their ids.

    Seeded reports were drawn from a seed. The answer of an owner asked as a whole has no ids.
    """

    reports: int
    seeded: bool
    ids: bytes = b""


def check_answer(
    answer: bytes,
    *,
    query: Query,
    plan: bytes,
    round_: int,
    most: int = MOST_RECORDS,
    shuffling: Shuffling | None = None,
) -> Checked:
    """Check an answer as `read_answer` does, without unpacking its reports.

    With a `shuffling`, it is taken from that shuffler only.
    """
    batch = _batch(answer, plan=plan, round_=round_)
    check_handover(batch, shuffling)
    n = check_batch(batch, query=query, plan=plan, round_=round_, most=most)
    return Checked(n, batch.seeded, b"" if query.whole else batch.ids)


def _batch(answer: bytes, *, plan: bytes, round_: int) -> wire.ReportBatch:
    message = parse(wire.Answer, answer)
    if message.code != OK:
        raise Refused(message.code if message.code in wire.Code.values() else wire.Code.MALFORMED)
    batch = message.batch
    if batch.round < round_ and batch.plan == plan:
        raise Refused(wire.Code.LATE)
    return batch


def admitted(
    fresh: Iterable[tuple[int, int]], already: Counted, limit: Allowance
) -> tuple[int, Counted]:
    """Decide how many of an owner's new batches are counted, in the order they came.

    `fresh` are the new reports and the bytes of each batch. Batches count until the first that goes
    beyond the limit; its code is SURPLUS. Returns their number, and the counts that include them.
    """
    taken = 0
    for reports, size in fresh:
        after = already.plus(reports=reports, size=size)
        if not limit.covers(after):
            break
        taken, already = taken + 1, after
    return taken, already


@dataclass
class Came:
    """What a round received: reports expected by the plan, reports, and the owners they came from.

    `too_few` owners declined it, because its slice holds fewer of their records than they allow.
    """

    expected: int
    reports: int = 0
    owners: int = 0
    too_few: int = 0


class Admission:
    """The answers to the queries of one campaign, held in memory."""

    def __init__(self, plan: Plan, *, model: bytes | None = None) -> None:
        """`model` is the file that the aggregator scores with, if the plan says that it does.

        A shuffled campaign is refused: its answers come through a shuffler to a durable server.
        """
        if plan.shuffling is not None:
            raise BadInput(
                "the plan names a shuffler, and owners are asked directly; accepted is such a plan "
                "at `confide-aggregator serve`, to which its shuffler hands over"
            )
        self._scores = report_scores(plan, model)
        self._plan, self._digest, self._most = plan, digest(plan.to_bytes()), most_in_campaign(plan)
        self._known = ReportIds()
        self._batches: list[Batch] = []
        self._query: Query | None = None
        self._round = -1
        self._limit = UNLIMITED
        self._sent: dict[bytes, Counted] = {}
        # The answers without reports in this round: they have no ids that would tell them apart.
        self._empty: set[Sent] = set()
        self.codes: Counter[str] = Counter()
        self.rounds: list[Came] = []
        # How many reports of each sender were counted, in all rounds.
        self.counted: Counter[bytes] = Counter()
        self.seeded = False

    def open(self, query: Query, round_: int) -> None:
        """Start taking answers to a query; answers to earlier queries are late from now on."""
        self._query, self._round = query, round_
        self._limit = allowance(self._plan, query, rounds=round_ + 1)
        self._sent = {sender: counted.next_round() for sender, counted in self._sent.items()}
        self._batches, self._empty = [], set()
        self.rounds.append(Came(round(self._plan.expected_records * (query.stop - query.start))))

    def admit(self, sent: Sent) -> wire.Receipt:
        """Admit or reject an answer, and return a receipt that says which."""
        try:
            fresh, repeated = self._admit(sent)
        except Refused as refused:
            name = wire.Code.Name(refused.code)
            self.codes[name] += 1
            if self.rounds and refused.code == wire.Code.GROUP_TOO_SMALL:
                self.rounds[-1].too_few += 1
            return wire.Receipt(version=VERSION, code=name)
        name = "OK" if fresh or not repeated else "DUPLICATE"
        self.codes[name] += 1
        return wire.Receipt(version=VERSION, code=name, accepted=fresh, duplicates=repeated)

    def _admit(self, sent: Sent) -> tuple[int, int]:
        if self._query is None:
            raise Refused(wire.Code.WRONG_ROUND)
        found = read_answer(
            sent, query=self._query, plan=self._digest, round_=self._round, most=self._most
        )
        fresh = self._count(sent, found)
        self.rounds[-1].reports += fresh
        self.seeded |= found.seeded and fresh > 0
        self.counted[sent.sender] += fresh
        return fresh, len(found) - fresh

    def _count(self, sent: Sent, batch: Batch) -> int:
        """Count the new reports of a batch, and return their number."""
        already = self._sent.get(sent.sender, Counted())
        new = self._new(sent, batch, already)
        if new is None:
            return 0
        taken, self._sent[sent.sender] = admitted(
            [(len(new), len(sent.answer))], already, self._limit
        )
        if not taken:
            raise Refused(wire.Code.SURPLUS)
        if not len(batch):
            self._empty.add(sent)
        self._known.add(new.ids)
        self._batches.append(new)
        return len(new)

    def _new(self, sent: Sent, batch: Batch, already: Counted) -> Batch | None:
        """The batch with those of its reports that are new; None if it was counted before.

        An owner asked as a whole answers once a round, whatever the id of its answer is.
        """
        assert self._query is not None
        if self._query.whole:
            return None if already.batches else batch
        if not len(batch):
            return None if sent in self._empty else batch
        places = np.flatnonzero(self._known.fresh(batch.ids))
        return batch.only(places) if len(places) else None

    def tally(self) -> Tally:
        """The tally of the answers to the open query so far."""
        if self._query is None:
            raise Refused(wire.Code.WRONG_ROUND)
        self.rounds[-1].owners = len({batch.sender for batch in self._batches if len(batch)})
        tally: Tally = self._query.tally(self._batches, self._scores)
        return tally
