"""One upload stream: reads an owner's answers, checks them and hands them to the writer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from confide.aggregator.server.assembly import Assembly, AssemblyMemory
from confide.aggregator.server.authentication import BELIEVED_SECONDS
from confide.aggregator.server.limits import (
    Deadline,
    MessageMemory,
    RateLimiter,
    Reading,
    ServerLimits,
)
from confide.aggregator.server.rounds.round_cache import CachedCampaign, declined
from confide.aggregator.storage.enrolment import Owner
from confide.aggregator.storage.reports.submissions import Packed, Stored, Submission
from confide.aggregator.storage.reports.writer import Writer
from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION

# A stream is written in pieces of so many bytes or batches, so that it may be long. At most PIECES
# of them are being written while the stream is read on.
PIECE_BYTES, PIECE_BATCHES, PIECES = 4 << 20, 1024, 4
# The memory that a batch takes besides its bytes.
AROUND_BYTES = 400


@dataclass
class Stream:
    """Takes the answers of one owner to one round until the stream ends or one is refused."""

    owner: Owner
    standing: CachedCampaign
    writer: Writer
    rate_limiter: RateLimiter
    limits: ServerLimits
    reading: Reading
    memory: MessageMemory
    look_again: Callable[[], Awaitable[CachedCampaign]]
    # Refuses the owner if it was removed since the stream began.
    known: Callable[[], Awaitable[object]]
    # The number of answers that the owner announced; a stream that ends with fewer is broken.
    announced: int | None = None
    assemblies: AssemblyMemory = field(default_factory=AssemblyMemory)
    accepted: int = 0
    duplicates: int = 0
    declined: bool = False
    _pending: list[Packed] = field(default_factory=list)
    _bytes: int = 0
    _seeded: bool = False
    _writing: deque[Awaitable[Stored]] = field(default_factory=deque)
    _looked: bool = False
    # Whether an answer was to a closed round: then the end of this stream finishes no round.
    _again: bool = False
    _code: int = wire.Code.OK

    def __post_init__(self) -> None:
        most = self.standing.campaign.plan.terms.answer_bytes
        self._assembly = Assembly(self.assemblies, self.owner.id, most=most)

    async def take(self, messages: AsyncIterator[bytes]) -> wire.Receipt:
        """Read and store the answers, and return a receipt for those that are durable.

        The receipt's code is that of the first answer refused.
        """
        try:
            await self._read(messages)
        except TimeoutError:
            raise Refused(wire.Code.TIMED_OUT) from None
        except Refused as refused:
            self._code = refused.code
            self._hand_over()
        finally:
            self.memory.give(self._bytes)
            self._bytes = 0
            self._assembly.release()
        await self._settle()
        if self._code in (wire.Code.UNAVAILABLE, wire.Code.UNAUTHENTICATED):
            raise Refused(self._code)
        return wire.Receipt(
            version=VERSION,
            code=wire.Code.Name(self._code),
            accepted=self.accepted,
            duplicates=self.duplicates,
        )

    async def _read(self, messages: AsyncIterator[bytes]) -> None:
        believed = asyncio.get_running_loop().time() + BELIEVED_SECONDS
        count, owner = 0, self.owner.id
        limits = self.limits
        self.rate_limiter.read(owner)
        async with Deadline(
            idle=limits.idle_seconds, whole=limits.stream_seconds, in_the_way=self._in_the_way
        ) as deadline:
            while True:
                # The owner waits for the server here, so time does not count.
                deadline.came()
                if not self.reading.take_now(owner):
                    await self.reading.take(owner)
                try:
                    deadline.wait()
                    if (answer := await anext(messages, None)) is None:
                        break
                    if (now := deadline.came()) >= believed:
                        await self.known()
                        believed = now + BELIEVED_SECONDS
                    count += 1
                    # All pieces of an answer are counted with the first: it must not be refused
                    # half way, because the owner would have to send all of it again.
                    if not self._assembly.begun:
                        self.rate_limiter.message(owner)
                        self.rate_limiter.read(owner, len(answer))
                    await self._take(answer)
                finally:
                    self.reading.give(owner)
        if self._assembly.begun:
            whole = self.announced in (None, count)
            raise Refused(wire.Code.MALFORMED if whole else wire.Code.UNAVAILABLE)
        await self._flush(finished=count == self.announced and not self._again)

    async def _take(self, answer: bytes) -> None:
        if len(answer) > self.limits.message_bytes:
            raise Refused(wire.Code.TOO_LARGE)
        if not self.standing.whole:
            await self._take_whole(answer)
            return
        begun = self._assembly.begun
        complete = await self._assembly.take(answer)
        if complete is not None:
            await self._take_whole(complete)
            self._assembly.release()
        elif not begun:
            self.rate_limiter.charge(self.owner.id, self._assembly.held - len(answer))

    async def _take_whole(self, answer: bytes) -> None:
        try:
            found: tuple[Packed, bool] | None = self.standing.admit(answer, self.owner)
        except Refused as refused:
            found = await self._reconsider(answer, refused)
        if found is not None:
            await self._add(*found)

    def _in_the_way(self) -> bool:
        """Whether others wait for memory that this stream holds."""
        return self.reading.wanted(self.owner.id) or self._assembly.in_the_way

    async def _add(self, batch: Packed, seeded: bool) -> None:
        size = len(batch.answer) + AROUND_BYTES
        if not self.memory.take_now(size):
            await self.memory.take(size)
        self._pending.append(batch)
        self._bytes += size
        self._seeded |= seeded
        if self._bytes >= PIECE_BYTES or len(self._pending) >= PIECE_BATCHES or self.memory.scarce:
            await self._flush()

    async def _reconsider(self, answer: bytes, refused: Refused) -> tuple[Packed, bool] | None:
        """Look again at a refused answer: return its batch, None if it is stored, or refuse it.

        An owner that declines has finished. A round that is unknown here may have been opened by
        another process, so the campaign is read again. An answer that was stored while its round
        was open, and is sent again, counts as taken in.
        """
        code = declined(answer)
        if code is not None:
            self.declined = True
            await self._flush(finished=True, code=code)
            raise refused
        if refused.code in (
            wire.Code.LATE,
            wire.Code.SURPLUS,
            wire.Code.CLOSED,
        ) and await self._was_stored(answer):
            return None
        if refused.code not in (wire.Code.WRONG_ROUND, wire.Code.CLOSED) or self._looked:
            raise refused
        await self._flush()
        self._looked, self.standing = True, await self.look_again()
        return self.standing.admit(answer, self.owner)

    async def _was_stored(self, answer: bytes) -> bool:
        """Whether this answer was stored before, so that only its receipt was lost.

        The writer decides: for a closed round it accepts no batch that is not stored already.
        """
        try:
            number, batch = self.standing.earlier(answer)
        except Refused:
            return False
        await self._flush()
        submission = Submission(self.standing.campaign.id, number, self.owner.id, [batch])
        became = await asyncio.wrap_future(self.writer.put(submission))
        stored = became.code == wire.Code.OK
        self._again |= stored
        self.duplicates += became.duplicates
        return stored

    async def _flush(self, *, finished: bool = False, code: str | None = None) -> None:
        """Hand the pending batches to the writer, once enough of the earlier pieces are durable."""
        # An owner has finished only when all its earlier pieces are durable.
        await self._settle(0 if finished else PIECES - 1)
        if self._code != wire.Code.OK:
            raise Refused(self._code)
        self._hand_over(finished=finished, code=code)

    def _hand_over(self, *, finished: bool = False, code: str | None = None) -> None:
        last = self.standing.last
        if last is None or not (self._pending or finished):
            return
        submission = Submission(
            self.standing.campaign.id,
            last.number,
            self.owner.id,
            batches=self._pending,
            seeded=self._seeded,
            finished=finished,
            code=code,
            limit=self.standing.allowance(self.owner),
            whole=self.standing.whole,
        )
        done, free = self.writer.put(submission), partial(self.memory.give, self._bytes)
        loop = asyncio.get_running_loop()
        # The piece is in memory until it is written, even if nobody waits for it any more.
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(free))
        self._writing.append(asyncio.wrap_future(done))
        self._pending, self._bytes = [], 0

    async def _settle(self, rest: int = 0) -> None:
        """Wait until at most `rest` pieces are still being written."""
        while len(self._writing) > rest:
            code, accepted, duplicates = await self._writing.popleft()
            self.accepted += accepted
            self.duplicates += duplicates
            # The first refusal is reported. UNAVAILABLE replaces it, because answers that may not
            # be durable are never acknowledged.
            if self._code == wire.Code.OK or code == wire.Code.UNAVAILABLE:
                self._code = code
