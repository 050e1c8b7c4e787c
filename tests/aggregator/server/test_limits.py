import asyncio
import selectors
from typing import Any

import pytest

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.limits import (
    HURRY_SECONDS,
    MOST_READ,
    READ_EACH,
    Deadline,
    MessageMemory,
    RateLimiter,
    Reading,
    ServerLimits,
)
from confide.protocol.errors import BadInput, Refused
from confide.protocol.wire.service import LARGEST_PIECE


def test_an_owner_sends_so_many_messages_a_second_and_no_more() -> None:
    """The messages of a second may come at once; then one for each share of a second that passes;
    another owner is free."""
    now = 0.0
    rate_limiter = RateLimiter(
        ServerLimits(messages_a_second=10, open_calls=2), ProcessStatus(), now=lambda: now
    )
    for _ in range(10):
        rate_limiter.message(1)
    with pytest.raises(Refused):
        rate_limiter.message(1)
    rate_limiter.message(2)
    now = 0.1
    rate_limiter.message(1)
    with pytest.raises(Refused):
        rate_limiter.message(1)
    now = 10.0
    with rate_limiter.call(1), rate_limiter.call(1), pytest.raises(Refused), rate_limiter.call(1):
        pass
    with rate_limiter.call(1):
        pass


def test_the_lowest_rate_lets_a_call_and_its_messages_through() -> None:
    """A call and each of its messages count; at one a second they get through all the same, and
    then no more."""
    now = 0.0
    rate_limiter = RateLimiter(ServerLimits(messages_a_second=1), ProcessStatus(), now=lambda: now)
    with rate_limiter.call(1):
        for _ in range(9):
            rate_limiter.message(1)
        with pytest.raises(Refused):
            rate_limiter.message(1)
    now = 2.0
    with rate_limiter.call(1):
        rate_limiter.message(1)


def test_a_server_takes_every_message_that_owners_send() -> None:
    """A limit below the size of their pieces would refuse what the records have paid for."""
    assert ServerLimits(message_bytes=LARGEST_PIECE).message_bytes == LARGEST_PIECE
    with pytest.raises(BadInput, match=f"accepted are {LARGEST_PIECE}"):
        ServerLimits(message_bytes=LARGEST_PIECE - 1)


class Patient(selectors.DefaultSelector):
    """Waits for nothing: the clock goes on instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """An event loop in which time passes only when everybody waits for it."""

    def __init__(self) -> None:
        self._clock = Patient()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


@pytest.mark.parametrize(
    ("waits", "works", "whole", "ends"),
    [
        # Always in time, until all of it took too long.
        ([9.0] * 20, [0.0] * 20, 100.0, 100.0),
        # The third does not come within ten seconds.
        ([9.0, 9.0, 10.5], [0.0] * 3, 100.0, 28.0),
        # What is done with one is not the time until the next, however often the clock is looked at
        # meanwhile.
        ([1.0, 9.0, 9.5], [35.0, 0.0, 10.0], 100.0, None),
        ([1.0, 11.0], [35.0, 0.0], 100.0, 46.0),
        # Both too long at once, or the whole before anything came.
        ([9.0, 11.0], [0.0, 0.0], 19.0, 19.0),
        ([9.0], [0.0], 5.0, 5.0),
        ([1.0], [50.0], 20.0, 20.0),
    ],
)
def test_a_stream_ends_when_nothing_comes_or_all_takes_too_long(
    waits: list[float], works: list[float], whole: float, ends: float | None
) -> None:
    """At that very moment, and at no other: ten seconds without a message, or so many in all."""

    async def run() -> float | None:
        clock = asyncio.get_running_loop().time
        try:
            async with Deadline(idle=10.0, whole=whole) as deadline:
                for wait, work in zip(waits, works, strict=True):
                    await asyncio.sleep(wait)
                    assert deadline.came() == clock()
                    await asyncio.sleep(work)
                    deadline.wait()
            ended = None
        except TimeoutError:
            ended = clock()
        # Nothing is left that would go off later.
        await asyncio.sleep(1_000)
        return ended

    with asyncio.Runner(loop_factory=Loop) as runner:
        wrong = list[Any]()
        runner.get_loop().set_exception_handler(lambda _, context: wrong.append(context))
        assert (runner.run(run()), wrong) == (ends, [])


@pytest.mark.parametrize(("in_the_way", "ends"), [(True, HURRY_SECONDS), (False, 30.0)])
def test_a_silent_stream_is_ended_sooner_where_others_wait(in_the_way: bool, ends: float) -> None:
    """After five seconds instead of thirty."""

    async def run() -> float:
        with pytest.raises(TimeoutError):
            async with Deadline(idle=30.0, whole=900.0, in_the_way=lambda: in_the_way):
                await asyncio.sleep(100)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(run()) == ends


def test_few_owners_with_many_streams_leave_room_to_read_others() -> None:
    """An owner has two messages on their way at once, all together as many as fit; who gives up
    leaves its own."""

    async def run() -> None:
        size = MOST_READ // 8
        reading = Reading(size)
        assert [reading.take_now(owner) for owner in (1, 1, 1, 2)] == [True, True, False, True]
        more = asyncio.create_task(reading.take(1))
        await asyncio.sleep(0)
        assert [reading.wanted(owner) for owner in (1, 2)] == [True, False]
        reading.give(1)
        await more
        assert [reading.take_now(owner) for owner in (2, 3, 3, 4, 4)] == [True] * 5
        # Eight messages are all there is room for, and a ninth owner waits for anybody's.
        assert not reading.take_now(5)
        late = asyncio.create_task(reading.take(5))
        await asyncio.sleep(0)
        assert reading.wanted(1)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        reading.give(4)
        assert (reading.take_now(5), reading.wanted(1), READ_EACH) == (True, False, 2)

    asyncio.run(run())


def test_who_could_take_at_once_does_not_pass_those_who_wait() -> None:
    """Not even in the moment between the room becoming free and the first of them taking it."""

    async def run() -> None:
        memory = MessageMemory(10)
        assert memory.take_now(10)
        assert not memory.take_now(1)
        waiting = [asyncio.create_task(memory.take(4)) for _ in range(2)]
        await asyncio.sleep(0)
        memory.give(10)
        while not all(task.done() for task in waiting):
            assert not memory.take_now(1)
            await asyncio.sleep(0)
        assert memory.take_now(2)
        assert (memory.held, memory.take_now(1)) == (10, False)

    asyncio.run(run())


def test_what_is_larger_than_all_the_room_goes_alone() -> None:
    """It waits until nothing else is held, and those that come later wait for it: nobody is passed
    over."""

    async def run() -> list[str]:
        memory, order = MessageMemory(10), list[str]()

        async def take(name: str, size: int) -> None:
            await memory.take(size)
            order.append(name)
            memory.give(size)

        await memory.take(5)
        waiting = [
            asyncio.create_task(take(name, size)) for name, size in (("large", 50), ("small", 1))
        ]
        await asyncio.sleep(0.01)
        assert order == []
        memory.give(5)
        await asyncio.gather(*waiting)
        return order

    assert asyncio.run(run()) == ["large", "small"]
