"""Streams of batches: what is taken in once, in time, and of whom."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from confide.aggregator.campaigns.allowance import Allowance
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server import upload as streams
from confide.aggregator.server.limits import MessageMemory
from confide.aggregator.server.rounds.round_cache import RoundCache
from confide.aggregator.storage import views
from confide.aggregator.storage.database import writing
from confide.aggregator.storage.reports.deposit import store_all
from confide.aggregator.storage.reports.ids import StoredIds
from confide.aggregator.storage.reports.submissions import Packed, Stored, Submission
from confide.aggregator.storage.reports.writer import Writer
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import Campaign
from confide.protocol.errors import Refused
from confide.protocol.methods.bits import BitQuery
from confide.protocol.plan import write_query
from confide.protocol.wire import wire_pb2 as wire
from tests.support.servers.databases import DATABASES
from tests.support.servers.open_round import CHANNEL, OWNER, REPORTS, OpenRound
from tests.support.servers.servers import holding


def test_what_was_stored_in_time_is_taken_in_whenever_it_comes_again(ready: OpenRound) -> None:
    """A receipt that was lost is given again after the round was closed; an answer that never came
    is late, next to it too."""
    store, memory = ready.place.store, MessageMemory(1 << 20)
    cache = RoundCache(store)

    async def source(*numbers: int) -> AsyncIterator[bytes]:
        for number in numbers:
            yield ready.answer(number)

    def take(*numbers: int) -> tuple[str, int, int]:
        stream = ready.stream(memory)
        stream.announced = len(numbers)
        receipt = asyncio.run(stream.take(source(*numbers)))
        return wire.Code.Name(receipt.code), receipt.accepted, receipt.duplicates

    assert take(0, 1) == ("OK", 2 * REPORTS, 0)
    store.close_round(ready.campaign, 0, "deadline", now=1.0)
    # The cache has not looked yet: the writer knows.
    assert take(1, 0) == ("OK", 0, 2 * REPORTS)
    assert take(0, 2) == ("LATE", 0, 0)
    later = write_query(BitQuery(CHANNEL, 0.0, 1.0, (0.5, 0.75)), plan=ready.plan, round_=1)
    store.ask(ready.campaign, 1, later, now=2.0, seconds=1.0)
    cache.refresh()
    ready.standing = cache.campaign(ready.campaign)
    assert take(1, 0) == ("OK", 0, 2 * REPORTS)
    assert take(0, 2) == ("LATE", 0, REPORTS)
    assert take(2) == ("LATE", 0, 0)
    store.close(ready.campaign, now=3.0)
    cache.refresh()
    ready.standing = cache.campaign(ready.campaign)
    assert take(0, 1) == ("OK", 0, 2 * REPORTS)
    assert take(2) == ("CLOSED", 0, 0)
    # Nobody has finished the second round by sending the first one again.
    assert [
        (part.round, part.reports, part.finished)
        for part in views.progress(store.engine, ready.campaign)
    ] == [(0, 2 * REPORTS, True)]
    assert views.stored_batches(store.engine, ready.campaign) == 2


@pytest.mark.parametrize("kind", DATABASES)
def test_of_two_first_parcels_at_once_one_waits_for_the_other(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:
    """An owner of whom nothing is known yet sends to two processes, and adds no more in all than
    the round takes of it."""
    with ThreadPoolExecutor(1) as pool:
        ready = OpenRound(tmp_path / "aggregator", database(kind), expected=1_000)
        engine, most = writing(ready.place.store.engine), ready.standing.allowance(OWNER).in_round
        one, other = (
            Submission(
                ready.campaign,
                0,
                1,
                [Packed(os.urandom(16), most - 1, holding(b"x"))],
                limit=Allowance(most),
            )
            for _ in range(2)
        )

        def store(submission: Submission) -> list[int]:
            with engine.begin() as db:
                return [answer.code for answer in store_all(db, [submission], StoredIds())]

        try:
            # Of what is refused whole, nothing stays.
            assert store(replace(one, limit=Allowance(10))) == [wire.Code.SURPLUS]
            assert views.progress(engine, ready.campaign) == []
            with engine.begin() as db:
                assert store_all(db, [one], StoredIds()) == [Stored(wire.Code.OK, most - 1)]
                waiting = pool.submit(store, other)
                with pytest.raises(TimeoutError):
                    waiting.result(timeout=1)
            assert waiting.result(timeout=30) == [wire.Code.SURPLUS]
        finally:
            ready.close()


def test_a_removed_owner_is_stopped_within_its_stream(
    ready: OpenRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token is looked up again from time to time; what came before stays, and the stream ends
    as unauthenticated."""
    monkeypatch.setattr(streams, "BELIEVED_SECONDS", 0.2)

    async def source() -> AsyncIterator[bytes]:
        yield ready.answer(0)
        ready.removed = True
        yield ready.answer(1)
        await asyncio.sleep(0.3)
        yield ready.answer(2)

    with pytest.raises(Refused) as refused:
        asyncio.run(ready.stream(MessageMemory(1 << 20)).take(source()))
    assert refused.value.code == wire.Code.UNAUTHENTICATED
    assert views.stored_batches(ready.place.store.engine, ready.campaign) == 2


def test_an_earlier_look_does_not_replace_a_later_one(ready: OpenRound) -> None:
    """One that read the store before a campaign was closed, and is slow, is not what is known in
    the end."""
    read, go_on = threading.Event(), threading.Event()

    class Slow(Store):
        def campaigns(self, *states: str) -> list[Campaign]:
            found = super().campaigns(*states)
            if not read.is_set():
                read.set()
                go_on.wait(30)
            return found

    cache = RoundCache(Slow(ready.place.store.engine))
    threads = [threading.Thread(target=cache.refresh) for _ in range(2)]
    threads[0].start()
    assert read.wait(30)
    ready.place.store.close(ready.campaign, now=1.0)
    threads[1].start()
    threads[1].join(0.5)
    go_on.set()
    for thread in threads:
        thread.join()
    assert cache.campaign(ready.campaign).campaign.state == "closed"


@pytest.mark.parametrize("kind", DATABASES)
def test_batches_are_counted_once_however_they_come(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:
    """Of many sizes, more than one statement takes, some of them twice.

    They come twice in a submission, in another submission, or from another process.
    """
    ready = OpenRound(tmp_path / "aggregator", database(kind))
    other = Writer(ready.place.store.engine, ProcessStatus())
    try:
        made = [Packed(os.urandom(16), 1 + i % 3, holding(b"x" * i)) for i in range(500)]
        submissions = [made[:300], made[:100] + made[:100], made[200:], made[::7]]
        codes = [
            writer.put(Submission(ready.campaign, 0, 1, batches))
            for batches in submissions
            for writer in (ready.writer, other)
        ]
        assert {code.result().code for code in codes} == {wire.Code.OK}
        (part,) = views.progress(ready.place.store.engine, ready.campaign)
        assert part.reports == sum(batch.reports for batch in made)
        assert views.stored_batches(ready.place.store.engine, ready.campaign) == len(made)
        assert sorted(
            answer for _, answer in ready.place.store.answers(ready.campaign, 0)
        ) == sorted(batch.answer for batch in made)
    finally:
        other.close()
        ready.close()
