"""Limits on how much, and how long, one owner and all owners together may use the server."""

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
class ServerLimits:
    """The limits that an operator sets for a server.

    For one owner: bytes per message, messages per second, bytes per second and open calls. For one
    stream: seconds without a message, and seconds in all. For all owners together: connections.
    """

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


# The least burst, however low the rate: a call and its messages are counted one by one.
SMALLEST_BUCKET = 10.0
# An owner that sends nothing saves up this many seconds of its rate: at the default rate 256 MB,
# more than most send to a whole campaign.
SAVED_SECONDS = 16.0
# The bytes of all messages being received, and the most messages of one owner among them; its
# client sends one at a time.
MOST_READ, READ_EACH = 64 << 20, 2
# While others wait to be read, a stream that sends nothing for this long is ended.
HURRY_SECONDS = 5.0


class Buckets:
    """Token buckets: each owner may use `most` at once, and regains `rate` per second."""

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
        """Charge `size` to an owner; if that is more than is left, the owner has a debt."""
        self._left[owner] = self.left(owner) - size, self._now()


class RateLimiter:
    """Counts the messages, bytes and open calls of owners, and refuses those above the limits.

    It must be used from one thread only.
    """

    def __init__(
        self, limits: ServerLimits, vitals: ProcessStatus, *, now: Callable[[], float]
    ) -> None:
        self._limits, self._vitals = limits, vitals
        self._open: Counter[int] = Counter()
        # The messages of one second may be sent at once, or SMALLEST_BUCKET if that is more.
        rate, size = limits.messages_a_second, limits.bytes_a_second
        self._messages = Buckets(rate, max(rate, SMALLEST_BUCKET), now=now)
        self._bytes = Buckets(size, SAVED_SECONDS * size, now=now)
        self._sent = Buckets(size, SAVED_SECONDS * size, now=now)

    def message(self, owner: int) -> None:
        """Count one message, or refuse it if the owner's rate is used up."""
        if self._messages.left(owner) < 1:
            raise Refused(wire.Code.RATE_LIMITED)
        self._messages.take(owner, 1)

    def read(self, owner: int, size: int = 0) -> None:
        """Count the bytes of a message, and refuse it if the owner already has a debt of bytes.

        A message counts in full, however large it turned out to be. The server also asks before it
        reads the first message of a stream, so that above the limit it reads at most one message
        per stream.
        """
        debt = self._bytes.left(owner) <= 0
        self._bytes.take(owner, size)
        if debt:
            raise Refused(wire.Code.RATE_LIMITED)

    def send(self, owner: int, size: int) -> None:
        """Count the bytes of a query, or refuse to send it if the owner has a debt of queries."""
        if self._sent.left(owner) <= 0:
            raise Refused(wire.Code.RATE_LIMITED)
        self._sent.take(owner, size)

    def charge(self, owner: int, size: int) -> None:
        """Count bytes that the owner will send, and refuse nothing."""
        self._bytes.take(owner, max(size, 0))

    @contextmanager
    def call(self, owner: int) -> Iterator[None]:
        """Count one call while it is open."""
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


class MessageMemory:
    """The bytes that all streams together may hold in memory.

    A stream that finds too few bytes free waits for its turn, and its owner waits with it.
    """

    def __init__(self, most: int) -> None:
        self._most, self.held, self._waiting = most, 0, 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    @property
    def wanted(self) -> bool:
        """Whether a stream is waiting for memory."""
        return self._waiting > 0

    @property
    def scarce(self) -> bool:
        """Whether more than half is held, so that streams should write their pending batches now.

        This way at least half of the memory always becomes free again.
        """
        return self.held > self._most // 2

    def take_now(self, size: int) -> bool:
        """Take `size` bytes if they are free and nobody is waiting; return whether it did."""
        if self._waiting or self.held + size > self._most:
            return False
        self.held += size
        return True

    async def take(self, size: int) -> None:
        """Wait until `size` bytes are free, and take them.

        A size larger than the whole memory is taken once nothing else is held.
        """
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
    """Limits the memory for messages that are being received, per owner and in total.

    The server takes memory for the largest message before it asks gRPC for one, since only then
    does gRPC accept all of it. Bytes that a stream sends before that wait in its flow-control
    window, which is small. Each owner has its own share, so that a few owners with many streams
    keep nobody waiting.
    """

    def __init__(self, size: int) -> None:
        self._size, self._all = size, MessageMemory(MOST_READ)
        self._each: dict[int, MessageMemory] = {}

    def wanted(self, owner: int) -> bool:
        """Whether another message waits for the memory that this owner's message holds."""
        return self._all.wanted or self._each[owner].wanted

    def take_now(self, owner: int) -> bool:
        """Take memory for one message of this owner, if it is free and nobody is waiting."""
        own = self._own(owner)
        if not own.take_now(self._size):
            return False
        if not self._all.take_now(self._size):
            own.give(self._size)
            return False
        return True

    async def take(self, owner: int) -> None:
        """Wait for memory for one message of this owner."""
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

    def _own(self, owner: int) -> MessageMemory:
        if owner not in self._each:
            self._each[owner] = MessageMemory(READ_EACH * self._size)
        return self._each[owner]


class Deadline:
    """Ends a block with a TimeoutError when one message, or the whole block, takes too long.

    A message may take `idle` seconds, or HURRY_SECONDS while `in_the_way` says that others are
    waiting. The block may take `whole` seconds. A message costs one look at the clock: a single
    timer is set, and set again if it fired too early.
    """

    def __init__(
        self, *, idle: float, whole: float, in_the_way: Callable[[], bool] = lambda: False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle, self._whole, self._in_the_way = idle, asyncio.timeout(whole), in_the_way

    async def __aenter__(self) -> "Deadline":
        await self._whole.__aenter__()
        self.wait()
        self._timer = self._loop.call_at(self._since + min(self._idle, HURRY_SECONDS), self._look)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._timer.cancel()
        await self._whole.__aexit__(*error)

    def came(self) -> float:
        """Stop counting time until the next wait, since a message came; return the time."""
        self._since = math.inf
        return self._loop.time()

    def wait(self) -> None:
        """Start counting the time that the next message takes."""
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
