"""How much one owner may ask of the server, and for how long, and all of them together."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confide.aggregator.process_status import ProcessStatus
from confide.protocol.errors import BadInput, Refused
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.service import LARGEST_PIECE


@dataclass(frozen=True)
class Limits:
    """Bytes a message, messages a second and open calls an owner; seconds without a message and in
    all for a stream; connections of everybody together; bytes a second an owner."""

    message_bytes: int = LARGEST_PIECE
    messages_a_second: float = 2_000.0
    open_calls: int = 8
    idle_seconds: float = 30.0
    stream_seconds: float = 900.0
    connections: int = 2_000
    bytes_a_second: float = 16 << 20

    def __post_init__(self) -> None:
        if not all(value > 0 for value in vars(self).values()):
            raise BadInput(f"{self}; every limit must be above 0")
        if self.message_bytes < LARGEST_PIECE:
            raise BadInput(
                f"message_bytes is {self.message_bytes}; accepted are {LARGEST_PIECE}, which "
                "owners send, or more"
            )


# What may be sent at once, however low the rate: a call and its messages are counted one by one.
SMALLEST_BUCKET = 10.0
# What an owner saves up while it sends nothing: at the default rate 256 MB, more than most send to
# a whole campaign.
SAVED_SECONDS = 16.0
# The bytes of all messages that are on their way in, and how many of them may be of one owner; its
# client sends one at a time.
MOST_READ, READ_EACH = 64 << 20, 2
# Where others wait to be read, who sends nothing for so long makes room for them.
HURRY_SECONDS = 5.0


class Buckets:
    """What each owner may still use: so much at once, and so much more with every second."""

    def __init__(self, rate: float, most: float, *, now: Callable[[], float]) -> None:
        self._rate, self._most, self._now = rate, most, now
        self._left: dict[int, tuple[float, float]] = {}

    def left(self, owner: int) -> float:
        now = self._now()
        left, since = self._left.get(owner, (self._most, now))
        left = min(self._most, left + self._rate * (now - since))
        self._left[owner] = left, now
        return left

    def take(self, owner: int, size: float) -> None:
        """Also more than is left, which is a debt."""
        self._left[owner] = self.left(owner) - size, self._now()


class Turnstile:
    """Counts what owners do, and refuses what is too much. One thread."""

    def __init__(self, limits: Limits, vitals: ProcessStatus, *, now: Callable[[], float]) -> None:
        self._limits, self._vitals = limits, vitals
        self._open: Counter[int] = Counter()
        # The messages of one second may be sent at once, or a few.
        rate, size = limits.messages_a_second, limits.bytes_a_second
        self._messages = Buckets(rate, max(rate, SMALLEST_BUCKET), now=now)
        self._bytes = Buckets(size, SAVED_SECONDS * size, now=now)

    def message(self, owner: int) -> None:
        """Count one message."""
        if self._messages.left(owner) < 1:
            raise Refused(wire.Code.RATE_LIMITED)
        self._messages.take(owner, 1)

    def read(self, owner: int, size: int = 0) -> None:
        """Count the bytes of a message, however large it turned out; refused while those before are
        not paid for.

        Asked before the first message of a stream is read, so of what is too much nothing is read
        but a message a stream.
        """
        debt = self._bytes.left(owner) <= 0
        self._bytes.take(owner, size)
        if debt:
            raise Refused(wire.Code.RATE_LIMITED)

    @contextmanager
    def call(self, owner: int) -> Iterator[None]:
        """Count one call for as long as it is open."""
        if self._open[owner] >= self._limits.open_calls:
            raise Refused(wire.Code.RATE_LIMITED)
        self.message(owner)
        self._open[owner] += 1
        self._vitals.open_calls += 1
        try:
            yield
        finally:
            self._open[owner] -= 1
            self._vitals.open_calls -= 1


class Places:
    """So many at a time, and no more."""

    def __init__(self, free: int) -> None:
        self._free = free

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take a place until the end, refused if there is none."""
        if self._free <= 0:
            raise Refused(wire.Code.RATE_LIMITED)
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


class Room:
    """The bytes that all streams together may hold: who finds too little of it waits its turn, and
    its owner with it."""

    def __init__(self, most: int) -> None:
        self._most, self.held, self._waiting = most, 0, 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for it."""
        return self._waiting > 0

    @property
    def scarce(self) -> bool:
        """Whether nobody should keep back what could be written: so at least half the room always
        becomes free again."""
        return self.held > self._most // 2

    def take_now(self, size: int) -> bool:
        """Take so much room if it is there and nobody waits for any."""
        if self._waiting or self.held + size > self._most:
            return False
        self.held += size
        return True

    async def take(self, size: int) -> None:
        """Wait for so much room; what is larger than all of it goes alone."""
        self._waiting += 1
        try:
            async with self._turn:
                while self.held and self.held + size > self._most:
                    self._freed.clear()
                    await self._freed.wait()
                self.held += size
        finally:
            self._waiting -= 1

    def give(self, size: int) -> None:
        self.held -= size
        self._freed.set()


class Reading:
    """Lets messages in: room for the largest is taken before one is asked for, since only then does
    gRPC accept all of it.

    What a stream sends unasked waits in its window, which is small. An owner has its own part of
    the room, so that few owners with many streams keep nobody waiting.
    """

    def __init__(self, size: int) -> None:
        self._size, self._all = size, Room(MOST_READ)
        self._each: dict[int, Room] = {}

    def wanted(self, owner: int) -> bool:
        """Whether a message of this owner is in the way of another."""
        return self._all.wanted or self._each[owner].wanted

    def take_now(self, owner: int) -> bool:
        """Take room for one message of this owner, if it is there and nobody waits for any."""
        own = self._own(owner)
        if not own.take_now(self._size):
            return False
        if not self._all.take_now(self._size):
            own.give(self._size)
            return False
        return True

    async def take(self, owner: int) -> None:
        """Wait for room for one message of this owner."""
        own = self._own(owner)
        await own.take(self._size)
        try:
            await self._all.take(self._size)
        except BaseException:
            own.give(self._size)
            raise

    def give(self, owner: int) -> None:
        self._each[owner].give(self._size)
        self._all.give(self._size)

    def _own(self, owner: int) -> Room:
        if owner not in self._each:
            self._each[owner] = Room(READ_EACH * self._size)
        return self._each[owner]


class Watch:
    """Ends a block with a TimeoutError when what it waits for takes too long to come, or all of it
    too long.

    Too long is `idle`, or HURRY_SECONDS while it is in the way of others. A message costs a look at
    the clock: one timer is set, and looks whether it was too early.
    """

    def __init__(
        self, *, idle: float, whole: float, in_the_way: Callable[[], bool] = lambda: False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle, self._whole, self._in_the_way = idle, asyncio.timeout(whole), in_the_way

    async def __aenter__(self) -> "Watch":
        await self._whole.__aenter__()
        self.wait()
        self._timer = self._loop.call_at(self._since + min(self._idle, HURRY_SECONDS), self._look)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._timer.cancel()
        await self._whole.__aexit__(*error)

    def came(self) -> float:
        """It is there, and time does not count until the next wait; the moment."""
        self._since = math.inf
        return self._loop.time()

    def wait(self) -> None:
        """From now on time counts."""
        self._since = self._loop.time()

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._since + (
            min(self._idle, HURRY_SECONDS) if self._in_the_way() else self._idle
        ):
            if not self._whole.expired():
                self._whole.reschedule(now)
        else:
            self._timer = self._loop.call_at(
                min(min(self._since, now) + self._idle, now + HURRY_SECONDS), self._look
            )
