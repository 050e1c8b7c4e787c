"""How much streams hold in memory, and how much an owner may add to a round."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from confide.aggregator.campaigns.allowance import SLACK, Allowance
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.limits import MessageMemory
from confide.aggregator.storage import views
from confide.aggregator.storage.reports.submissions import Packed, Submission
from confide.aggregator.storage.reports.writer import Writer
from confide.protocol.wire import wire_pb2 as wire
from tests.support.servers.databases import DATABASES
from tests.support.servers.open_round import OWNER, REPORTS, OpenRound
from tests.support.servers.servers import holding


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


@pytest.mark.parametrize("kind", DATABASES)
def test_an_owner_adds_no_more_than_a_round_takes_of_it(
    kind: str, database: Callable[[str], str], tmp_path: Path
) -> None:
    """Over both of two processes; what came before the bound stays, and is taken in again, next to
    others that are new too."""
    ready = OpenRound(tmp_path / "aggregator", database(kind), expected=1_000)
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
        assert put(other, Packed(b"z" * 16, 1, holding(b"z"))).result().code == wire.Code.SURPLUS
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
