"""The answers of one stream, on their way to disk."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from confide.aggregator.server.authentication import BELIEVED_SECONDS
from confide.aggregator.server.limits import Limits, Reading, Room, Turnstile, Watch
from confide.aggregator.server.round_cache import CachedCampaign, declined
from confide.aggregator.storage.enrolment import Owner
from confide.aggregator.storage.parcels import Packed, Parcel, Stored
from confide.aggregator.storage.report_writer import Writer
from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION

# A stream is written piece by piece, so that it may be long, and goes on while so many pieces are
# on their way to disk.
PIECE_BYTES, PIECE_BATCHES, PIECES = 4 << 20, 1024, 4
# What a batch takes in memory besides its bytes.
AROUND_BYTES = 400


@dataclass
class Stream:
    """Takes answers of one owner to one round until the stream ends or one is refused."""

    owner: Owner
    standing: CachedCampaign
    writer: Writer
    turnstile: Turnstile
    limits: Limits
    reading: Reading
    room: Room
    look_again: Callable[[], Awaitable[CachedCampaign]]
    # Refuses an owner that was removed since.
    known: Callable[[], Awaitable[object]]
    # How many answers the owner said it sends; an end before that is a broken stream.
    announced: int | None = None
    accepted: int = 0
    duplicates: int = 0
    declined: bool = False
    _pending: list[Packed] = field(default_factory=list)
    _bytes: int = 0
    _seeded: bool = False
    _writing: deque[Awaitable[Stored]] = field(default_factory=deque)
    _looked: bool = False
    # Whether an answer was to a round that is over: then this stream finishes none.
    _again: bool = False
    _code: int = wire.Code.OK

    async def take(self, messages: AsyncIterator[bytes]) -> wire.Receipt:
        """What was taken in, durably; the code is that of the first answer refused."""
        try:
            await self._read(messages)
        except TimeoutError:
            raise Refused(wire.Code.TIMED_OUT) from None
        except Refused as refused:
            self._code = refused.code
            self._hand_over()
        finally:
            self.room.give(self._bytes)
            self._bytes = 0
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
        limits, wanted = self.limits, partial(self.reading.wanted, owner)
        self.turnstile.read(owner)
        async with Watch(
            idle=limits.idle_seconds, whole=limits.stream_seconds, in_the_way=wanted
        ) as watch:
            while True:
                # Here the owner waits for us.
                watch.came()
                if not self.reading.take_now(owner):
                    await self.reading.take(owner)
                try:
                    watch.wait()
                    if (answer := await anext(messages, None)) is None:
                        break
                    if (now := watch.came()) >= believed:
                        await self.known()
                        believed = now + BELIEVED_SECONDS
                    count += 1
                    self.turnstile.message(owner)
                    self.turnstile.read(owner, len(answer))
                    await self._take(answer)
                finally:
                    self.reading.give(owner)
        await self._flush(finished=count == self.announced and not self._again)

    async def _take(self, answer: bytes) -> None:
        if len(answer) > self.limits.message_bytes:
            raise Refused(wire.Code.TOO_LARGE)
        try:
            found: tuple[Packed, bool] | None = self.standing.admit(answer, self.owner)
        except Refused as refused:
            found = await self._reconsider(answer, refused)
        if found is not None:
            await self._add(*found)

    async def _add(self, batch: Packed, seeded: bool) -> None:
        size = len(batch.answer) + AROUND_BYTES
        if not self.room.take_now(size):
            await self.room.take(size)
        self._pending.append(batch)
        self._bytes += size
        self._seeded |= seeded
        if self._bytes >= PIECE_BYTES or len(self._pending) >= PIECE_BATCHES or self.room.scarce:
            await self._flush()

    async def _reconsider(self, answer: bytes, refused: Refused) -> tuple[Packed, bool] | None:
        """An owner that declines has finished. A round that is not known here may have been opened
        by another process. What was stored while its round was open, and is sent again, was taken
        in: None."""
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
        """Whether the receipt of this answer was lost, and not the answer. The writer decides: it
        takes no other one."""
        try:
            number, batch = self.standing.earlier(answer)
        except Refused:
            return False
        await self._flush()
        parcel = Parcel(self.standing.campaign.id, number, self.owner.id, [batch])
        became = await asyncio.wrap_future(self.writer.put(parcel))
        stored = became.code == wire.Code.OK
        self._again |= stored
        self.duplicates += became.duplicates
        return stored

    async def _flush(self, *, finished: bool = False, code: str | None = None) -> None:
        """Hand what waits to the writer, once enough of what was handed over before is durable."""
        # An owner has finished only when all that came before is durable.
        await self._settle(0 if finished else PIECES - 1)
        if self._code != wire.Code.OK:
            raise Refused(self._code)
        self._hand_over(finished=finished, code=code)

    def _hand_over(self, *, finished: bool = False, code: str | None = None) -> None:
        last = self.standing.last
        if last is None or not (self._pending or finished):
            return
        name, batches = self.standing.campaign.id, self._pending
        most, in_all = self.standing.most(self.owner)
        parcel = Parcel(
            name,
            last.number,
            self.owner.id,
            batches,
            self._seeded,
            finished,
            code,
            most,
            in_all,
            self.standing.whole,
            self.standing.most_bytes(self.owner),
        )
        done, free = self.writer.put(parcel), partial(self.room.give, self._bytes)
        loop = asyncio.get_running_loop()
        # Even if nobody waits for it any more, it is in memory until it is written.
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(free))
        self._writing.append(asyncio.wrap_future(done))
        self._pending, self._bytes = [], 0

    async def _settle(self, rest: int = 0) -> None:
        """Wait until no more than so many pieces are on their way."""
        while len(self._writing) > rest:
            code, accepted, duplicates = await self._writing.popleft()
            self.accepted += accepted
            self.duplicates += duplicates
            # What was refused first is why; but what may not be durable is never acknowledged.
            if self._code == wire.Code.OK or code == wire.Code.UNAVAILABLE:
                self._code = code
