import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from confide.aggregator.campaigns.allowance import SLACK, Allowance
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server import upload as streams
from confide.aggregator.server.limits import MessageMemory, RateLimiter, Reading, ServerLimits
from confide.aggregator.server.round_cache import CachedCampaign, RoundCache
from confide.aggregator.server.upload import Stream
from confide.aggregator.storage import views
from confide.aggregator.storage.database import writing
from confide.aggregator.storage.deposit import store_all
from confide.aggregator.storage.enrolment import Owner
from confide.aggregator.storage.report_writer import Writer
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import Campaign
from confide.aggregator.storage.stored_ids import StoredIds
from confide.aggregator.storage.submissions import Packed, Stored, Submission
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import Refused
from confide.protocol.methods.bits import BitQuery
from confide.protocol.plan import digest, write_query
from confide.protocol.wire import wire_pb2 as wire
from tests.support.answers import answer, bit_batch
from tests.support.postgres import binaries, postgres
from tests.support.servers import Place, holding, plan_now

KINDS = [
    "sqlite",
    pytest.param(
        "postgres", marks=pytest.mark.skipif(binaries() is None, reason="no PostgreSQL here")
    ),
]
CHANNEL = Bit(epsilon=4.0)
REPORTS = 500
OWNER = Owner(1, "owner")


class OpenRound:
    """An open round and a writer in this process."""

    def __init__(self, folder: Path, url: str = "", *, expected: int = 100_000) -> None:
        self.place, self.removed = Place(folder, url), False
        plan = plan_now(expected_records=expected)
        self.campaign, self.plan = self.place.campaign(plan), digest(plan.to_bytes())
        self.place.enrol("owner")
        query = write_query(BitQuery(CHANNEL, 0.0, 1.0, (0.25, 0.75)), plan=self.plan, round_=0)
        self.place.store.ask(self.campaign, 0, query, now=0.0, seconds=1.0)
        self.writer, cache = (
            Writer(self.place.store.engine, ProcessStatus()),
            RoundCache(self.place.store),
        )
        cache.refresh()
        self.standing = cache.campaign(self.campaign)

    def stream(self, memory: MessageMemory) -> Stream:
        limits = ServerLimits(messages_a_second=1e9)

        async def look_again() -> CachedCampaign:
            return self.standing

        async def known() -> None:
            if self.removed:
                raise Refused(wire.Code.UNAUTHENTICATED)

        rate_limiter = RateLimiter(limits, ProcessStatus(), now=time.monotonic)
        reading = Reading(limits.message_bytes)
        return Stream(
            OWNER,
            self.standing,
            self.writer,
            rate_limiter,
            limits,
            reading,
            memory,
            look_again,
            known,
        )

    def answer(self, number: int) -> bytes:
        return answer(bit_batch(REPORTS, first=REPORTS * number), plan=self.plan)

    @contextmanager
    def stuck(self) -> Iterator[None]:
        """Nothing becomes durable meanwhile."""
        with writing(self.place.store.engine).begin():
            yield

    def close(self) -> None:
        self.writer.close()
        self.place.close()


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[OpenRound]:
    made = OpenRound(tmp_path / "aggregator")
    yield made
    made.close()


async def quiet(read: list[int]) -> int:
    """How much was read when nothing more is."""
    before = -1
    while before != sum(read):
        before = sum(read)
        await asyncio.sleep(0.5)
    return before


def test_all_streams_together_hold_no_more_than_there_is_room_for(ready: OpenRound) -> None:
    """While the disk stands still ten streams read on until the memory is full, and no further.

    Then all is taken in.
    """
    most, streams, messages = 200_000, 10, 20
    read, held = [0] * streams, list[int]()
    memory = MessageMemory(most)

    async def source(number: int) -> AsyncIterator[bytes]:
        for i in range(messages):
            held.append(memory.held)
            message = ready.answer(messages * number + i)
            read[number] += len(message)
            yield message

    async def run() -> list[wire.Receipt]:
        with ready.stuck():
            taking = [
                asyncio.create_task(ready.stream(memory).take(source(number)))
                for number in range(streams)
            ]
            # What is in hand besides: one message a stream.
            assert most // 2 < await quiet(read) <= most + streams * len(ready.answer(0))
        return await asyncio.wait_for(asyncio.gather(*taking), 60)

    receipts = asyncio.run(run())
    assert {receipt.code for receipt in receipts} == {wire.Code.OK}
    assert sum(receipt.accepted for receipt in receipts) == streams * messages * REPORTS
    assert views.stored_batches(ready.place.store.engine, ready.campaign) == streams * messages
    assert max(held) <= most
    assert memory.held == 0


def test_streams_that_stand_still_leave_room_for_others(ready: OpenRound) -> None:
    """Ten owners that send something and then nothing keep no more than half of the memory; another
    gets through."""
    memory = MessageMemory(200_000)

    async def some_and_then_nothing(number: int) -> AsyncIterator[bytes]:
        for i in range(10):
            yield ready.answer(10 * number + i)
        await asyncio.sleep(60)

    async def whole() -> AsyncIterator[bytes]:
        for i in range(20):
            yield ready.answer(200 + i)

    async def run() -> wire.Receipt:
        standing = [
            asyncio.create_task(ready.stream(memory).take(some_and_then_nothing(number)))
            for number in range(10)
        ]
        await asyncio.sleep(0.5)
        receipt = await asyncio.wait_for(ready.stream(memory).take(whole()), 30)
        for stream in standing:
            stream.cancel()
        await asyncio.wait(standing)
        return receipt

    assert asyncio.run(run()).accepted == 20 * REPORTS
    assert memory.held == 0


def test_who_gives_up_waiting_neither_stops_the_writer_nor_frees_what_it_holds(
    ready: OpenRound,
) -> None:
    """A stream that is cancelled while the disk stands still: its bytes count until they are
    written, and the next is taken."""
    memory = MessageMemory(1 << 20)

    async def one(number: int) -> AsyncIterator[bytes]:
        yield ready.answer(number)

    async def run() -> wire.Receipt:
        with ready.stuck():
            given_up = asyncio.create_task(ready.stream(memory).take(one(0)))
            await asyncio.sleep(0.5)
            given_up.cancel()
            await asyncio.wait([given_up])
            assert memory.held > 0
        return await asyncio.wait_for(ready.stream(memory).take(one(1)), 30)

    assert asyncio.run(run()).accepted == REPORTS
    assert memory.held == 0
    assert views.stored_batches(ready.place.store.engine, ready.campaign) == 2


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


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_first_parcels_at_once_one_waits_for_the_other(kind: str, tmp_path: Path) -> None:
    """An owner of whom nothing is known yet sends to two processes, and adds no more in all than
    the round takes of it."""
    with (
        postgres(Path("/tmp")) if kind == "postgres" else nullcontext("") as url,
        ThreadPoolExecutor(1) as pool,
    ):
        ready = OpenRound(tmp_path / "aggregator", url, expected=1_000)
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


@pytest.mark.parametrize("kind", KINDS)
def test_an_owner_adds_no_more_than_a_round_takes_of_it(kind: str, tmp_path: Path) -> None:
    """Over both of two processes; what came before the bound stays, and is taken in again, next to
    others that are new too."""
    with postgres(Path("/tmp")) if kind == "postgres" else nullcontext("") as url:
        ready = OpenRound(tmp_path / "aggregator", url, expected=1_000)
        other = Writer(ready.place.store.engine, ProcessStatus())
        limit = ready.standing.allowance(OWNER)
        most = limit.in_round
        assert most == limit.in_campaign == SLACK * 1_000
        try:
            made = [Packed(os.urandom(16), 100, holding(b"x")) for _ in range(2 * most // 100)]

            def put(writer: Writer, *batches: Packed) -> Any:
                return writer.put(Submission(ready.campaign, 0, 1, batches, limit=Allowance(most)))

            codes = [put(writer, batch) for batch in made for writer in (ready.writer, other)]
            assert {code.result().code for code in codes} == {wire.Code.OK, wire.Code.SURPLUS}
            (part,) = views.progress(ready.place.store.engine, ready.campaign)
            assert part.reports == part.batches * 100 == most // 100 * 100
            stored = {answer for _, answer in ready.place.store.answers(ready.campaign, 0)}
            assert stored == {holding(b"x")}
            taken = [
                batch
                for batch, code in zip(made, codes[::2], strict=True)
                if code.result().code == wire.Code.OK
            ]
            assert put(other, *taken).result().code == wire.Code.OK
            assert (
                put(other, *taken, Packed(b"y" * 16, most % 100, holding(b"y"))).result().code
                == wire.Code.OK
            )
            assert (
                put(other, Packed(b"z" * 16, 1, holding(b"z"))).result().code == wire.Code.SURPLUS
            )
            # Another owner has a bound of its own.
            ready.place.enrol("other")
            assert (
                other.put(Submission(ready.campaign, 0, 2, made[:5], limit=Allowance(most)))
                .result()
                .code
                == wire.Code.OK
            )
        finally:
            other.close()
            ready.close()


def test_batches_without_reports_are_bounded_too(ready: OpenRound) -> None:
    """Nothing that an owner can store is without end."""
    empty = [Packed(os.urandom(16), 0, holding(b"x")) for _ in range(11)]
    codes = [
        ready.writer.put(Submission(ready.campaign, 0, 1, [batch], limit=Allowance(10)))
        .result()
        .code
        for batch in empty
    ]
    assert codes == [wire.Code.OK] * 10 + [wire.Code.SURPLUS]


def test_a_stream_of_made_up_reports_ends_in_surplus(tmp_path: Path) -> None:
    """The receipt counts what was taken; sent again, the same answers are duplicates."""
    ready = OpenRound(tmp_path / "aggregator", expected=1_200)
    try:

        async def source(count: int) -> AsyncIterator[bytes]:
            for number in range(count):
                yield ready.answer(number)
                # Each on its own, as if it took long.
                await stream._flush()

        taken = []
        for count in (10, 3, 10):
            stream = ready.stream(MessageMemory(1 << 20))
            receipt = asyncio.run(stream.take(source(count)))
            taken.append((wire.Code.Name(receipt.code), receipt.accepted, receipt.duplicates))
        assert taken == [
            ("SURPLUS", 3 * REPORTS, 0),
            ("OK", 0, 3 * REPORTS),
            ("SURPLUS", 0, 3 * REPORTS),
        ]
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


def test_what_was_written_leaves_memory(ready: OpenRound) -> None:
    """Twenty transactions of ever more batches, 24 MB each: the process grows by less than a
    quarter of them.

    A driver that keeps what it has bound grows by all 480 MB; what the allocator keeps depends on
    the tests before.
    """

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    sizes, before = [], 0
    for count in range(10, 30):
        batches = [
            Packed(os.urandom(16), 1, holding(os.urandom(24_000_000 // count)))
            for _ in range(count)
        ]
        assert (
            ready.writer.put(Submission(ready.campaign, 0, 1, batches)).result().code
            == wire.Code.OK
        )
        del batches
        before = before or resident()
        sizes.append(resident() - before)
    assert max(sizes) < 120_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_counted_once_however_they_come(kind: str, tmp_path: Path) -> None:
    """Of many sizes, more than one statement takes, some of them twice.

    They come twice in a submission, in another submission, or from another process.
    """
    with postgres(Path("/tmp")) if kind == "postgres" else nullcontext("") as url:
        ready = OpenRound(tmp_path / "aggregator", url)
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
