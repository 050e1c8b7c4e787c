"""One rule for what counts: answers in memory (Flower) and in the store (gRPC) count the same."""

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from confide.aggregator.campaigns import allowance
from confide.aggregator.campaigns.admission import Admission, Sent, admitted
from confide.aggregator.campaigns.allowance import Allowance, Counted
from confide.aggregator.server.rounds.round_cache import RoundCache
from confide.aggregator.server.rounds.stored_rounds import StoredRounds
from confide.aggregator.storage import views
from confide.aggregator.storage.database import writing
from confide.aggregator.storage.enrolment import Owner
from confide.aggregator.storage.reports.deposit import store_all
from confide.aggregator.storage.reports.ids import StoredIds
from confide.aggregator.storage.reports.submissions import Submission
from confide.protocol.methods.base import Query
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.counts.queries import CountQuery
from confide.protocol.plan import Plan, digest, read_query, write_query
from confide.protocol.sealing import sealing_key
from confide.protocol.wire import wire_pb2 as wire
from tests.support.cards.central import NOISED
from tests.support.owners.answers import QUERY, answer, bit_batch, counts, one_part
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import KEY, central
from tests.support.servers.servers import Place, eventually, plan_now

# With FEW = 0 a round of half the positions takes 13 reports of an owner, and the campaign 25.
PLAN = plan_now(variant="one-shot", expected_records=20)
# One owner's answers of one upload: the names of the reports in each of its batches.
Upload = tuple[int, list[list[int]]]
Result = tuple[str, int, int]


def one(plan: Plan, names: list[int], round_: int) -> bytes:
    batch = one_part(bit_batch(max(names, default=0) + 1)).only(names)
    return answer(batch, plan=digest(plan.to_bytes()), round_=round_)


class InMemory:
    """Answers that are admitted one by one, and so each with a receipt of its own."""

    def __init__(self, plan: Plan) -> None:
        self.admission = Admission(plan)

    def open(self, query: Query, round_: int) -> None:
        self.admission.open(query, round_)

    def upload(self, owner: int, answers: Sequence[bytes]) -> Result:
        """The receipts up to the first refusal, added up as for one upload."""
        accepted = duplicates = 0
        for sent in answers:
            # The name that the store gives its owners.
            receipt = self.admission.admit(Sent((owner + 1).to_bytes(8, "big"), sent))
            if receipt.code not in (wire.Code.OK, wire.Code.DUPLICATE):
                return wire.Code.Name(receipt.code), accepted, duplicates
            accepted, duplicates = accepted + receipt.accepted, duplicates + receipt.duplicates
        return "OK", accepted, duplicates


class InStore:
    """Answers that are stored as the server does, with a database of its own."""

    def __init__(self, folder: Path, plan: Plan, *, records: int | None = None) -> None:
        self.place, self.plan, self.known = Place(folder), plan, StoredIds()
        self.campaign = self.place.campaign(plan)
        self.owners = [Owner(number, str(number), records) for number in (1, 2)]
        for owner in self.owners:
            self.place.enrol(owner.name, records=records)

    def open(self, query: Query, round_: int) -> None:
        store = self.place.store
        if round_:
            store.close_round(self.campaign, round_ - 1, "deadline", now=float(round_))
        asked = write_query(query, plan=digest(self.plan.to_bytes()), round_=round_)
        store.ask(self.campaign, round_, asked, now=float(round_), seconds=1.0)
        cache = RoundCache(store)
        cache.refresh()
        self.cached, self.round = cache.campaign(self.campaign), round_

    def upload(self, owner: int, answers: Sequence[bytes]) -> Result:
        sender = self.owners[owner]
        submission = Submission(
            self.campaign,
            self.round,
            sender.id,
            batches=[self.cached.admit(sent, sender)[0] for sent in answers],
            limit=self.cached.allowance(sender),
            whole=self.cached.whole,
        )
        with writing(self.place.store.engine).begin() as db:
            (stored,) = store_all(db, [submission], self.known)
        return wire.Code.Name(stored.code), stored.accepted, stored.duplicates

    def tally(self, query: Query, round_: int) -> Any:
        store = self.place.store
        store.close_round(self.campaign, round_, "deadline", now=9.0)
        rounds = store.rounds(self.campaign)
        campaign, key = store.campaign(self.campaign), sealing_key(KEY)
        return StoredRounds(store, campaign, rounds, now=9.0, key=key)(query, round_)


NAMES = st.lists(st.integers(0, 59), unique=True, max_size=16)
UPLOADS = st.lists(st.tuples(st.integers(0, 1), st.lists(NAMES, max_size=4)), max_size=6)


def _shared(rounds: tuple[list[Upload], list[Upload]]) -> set[int]:
    """The names that both owners send, in any round."""
    sent: tuple[set[int], set[int]] = (set(), set())
    for owner, batches in itertools.chain(*rounds):
        sent[owner].update(*batches)
    return sent[0] & sent[1]


@pytest.mark.usefixtures("no_slack")
@settings(max_examples=40, deadline=None)
@given(st.tuples(UPLOADS, UPLOADS))
# A batch twice, batches that overlap, and another owner's ids.
@example(([(0, [[0, 1, 2], [0, 1, 2]]), (0, [[2, 3]]), (1, [[0, 4]])], []))
# 13 reports fit into a round, in one batch or several, and no 14th; the batches before it count.
@example(([(0, [[*range(12)], [12], [13]]), (0, [[14]]), (0, [[*range(13)]])], []))
# A smaller batch still fits after one that did not.
@example(([(0, [[*range(10)], [*range(10, 14)]]), (0, [[10, 11]])], []))
# Two rounds take 13 reports each, and the campaign 25 of the 26.
@example(([(0, [[*range(13)]])], [(0, [[*range(13, 25)]]), (0, [[25]]), (1, [[25]])]))
# Ids that are known, with a new one in each batch, take bytes that run out before reports do.
@example(([(0, [[*range(12)], [*range(11), 12]])], [(0, [[*range(13), 20 + i]]) for i in range(9)]))
# An answer without reports, again and again: it is one batch of its owner.
@example(([(0, [*[[]] * 14, [*range(12)]]), (0, [[]]), (1, [[]])], [(0, [[]])]))
def test_both_paths_count_the_same(rounds: tuple[list[Upload], list[Upload]]) -> None:
    """Whatever two owners send in two rounds: codes, receipts, sums and tallies are the same."""
    queries = [BitQuery(QUERY.channel, *half, (0.5, 0.75)) for half in ((0.0, 0.5), (0.5, 1.0))]
    with tempfile.TemporaryDirectory() as folder:
        memory, store = InMemory(PLAN), InStore(Path(folder), PLAN)
        try:
            for number, (query, uploads) in enumerate(zip(queries, rounds, strict=True)):
                memory.open(query, number)
                store.open(query, number)
                for owner, batches in uploads:
                    answers = [one(PLAN, names, number) for names in batches]
                    assert memory.upload(owner, answers) == store.upload(owner, answers)
                here: Any = memory.admission.tally()
                stored = store.tally(query, number)
                assert replace(here, parts={}) == replace(stored, parts={})
                # An id that two owners send counts once. In memory it is the part of who came
                # first, and in the store, which keeps no order, that of who enrolled first.
                if not _shared(rounds):
                    assert here == stored
            contributions = views.contributions(store.place.store.engine, store.campaign)
            counted = memory.admission.counted.values()
            assert sorted(filter(None, counted)) == sorted(filter(None, contributions))
        finally:
            store.place.close()


@pytest.fixture(scope="module")
def no_slack() -> object:
    """Rounds take 1.25 times the reports that are expected, and not a thousand more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allowance, "FEW", 0)
        yield


def test_an_owner_of_one_record_answers_every_round_as_a_whole(tmp_path: Path) -> None:
    """Its answers are one a round, not one a record: over gRPC too it may answer all rounds."""
    plan = plan_now(NOISED, expected_records=1)
    memory, store = InMemory(plan), InStore(tmp_path, plan, records=1)
    query = CountQuery(0.5, central(plan).noise_variance)
    try:
        for round_ in range(4):
            answers = [counts(plan, 1, count, round_=round_) for count in (0, 1)]
            for path in memory, store:
                path.open(query, round_)
                assert path.upload(0, answers) == ("OK", 1, 1)
                assert path.upload(0, answers[:1]) == ("OK", 0, 1)
    finally:
        store.place.close()


def test_an_upload_over_the_wire_counts_until_the_first_surplus(place: Place) -> None:
    """A running server gives the receipts of the in-memory path, within and beyond an upload."""
    plan = plan_now(variant="one-shot", expected_records=400)
    campaign, tokens = place.campaign(plan), [place.enrol(name) for name in ("north", "south")]
    server = place.serve()
    (asked,) = eventually(lambda: place.store.queries(campaign))
    query, _ = read_query(asked, plan=plan, plan_digest=digest(plan.to_bytes()))
    memory = InMemory(plan)
    memory.open(query, 0)
    hands = [Wire(server, campaign, token) for token in tokens]
    uploads: list[Upload] = [
        (0, [[*range(400)], [*range(390, 499)], [499, 500], [499]]),
        (0, [[499]]),
        (0, [[*range(400)], [501]]),
        (1, [[499, 500]]),
    ]
    results = []
    for owner, batches in uploads:
        answers = [one(plan, names, 0) for names in batches]
        results.append(hands[owner].receipt(*answers, last=False))
        assert results[-1] == memory.upload(owner, answers)
    assert results == [("SURPLUS", 499, 10), ("OK", 1, 0), ("SURPLUS", 0, 400), ("OK", 1, 1)]
    assert place.store.turnout(campaign, 0).reports == 501


def test_batches_count_until_the_first_beyond_a_limit() -> None:
    """Each of the four bounds ends the admission by itself; the counts are those admitted."""
    fresh, already = [(3, 100), (2, 50), (1, 10)], Counted(1, 10, 20, 1_000)
    assert admitted(fresh, already, Allowance()) == (3, Counted(4, 16, 26, 1_160))
    for limit, taken in (
        (Allowance(in_round=15), 2),
        (Allowance(in_campaign=24), 1),
        (Allowance(bytes=1_099), 0),
    ):
        assert admitted(fresh, already, limit)[0] == taken
    empty = [(0, 1)] * 4
    assert admitted(empty, Counted(), Allowance(in_round=2)) == (2, Counted(2, 0, 0, 2))
