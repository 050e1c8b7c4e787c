"""Long answers that arrive in pieces: put together in memory, and only then checked and stored."""

from confide.aggregator.server.limits import MessageMemory
from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from confide.protocol.wire.splitting import Pieces

# The bytes of all answers that are being put together.
MOST_ASSEMBLED = 64 << 20


class AssemblyMemory:
    """The memory for answers in pieces; an owner may have one such answer at a time.

    It is taken for the whole answer at its first piece, so that streams never wait for each other
    with half an answer each.
    """

    def __init__(self) -> None:
        self._all, self._owners = MessageMemory(MOST_ASSEMBLED), set[int]()

    @property
    def wanted(self) -> bool:
        """Whether an answer waits for the memory that others hold."""
        return self._all.wanted

    async def take(self, owner: int, size: int) -> None:
        if owner in self._owners:
            raise Refused(wire.Code.RATE_LIMITED)
        self._owners.add(owner)
        try:
            await self._all.take(size)
        except BaseException:
            self._owners.discard(owner)
            raise

    def give(self, owner: int, size: int) -> None:
        self._owners.discard(owner)
        self._all.give(size)


class Assembly:
    """The answer that one stream of an owner brings, whole or in pieces, of at most `most` bytes.

    Nothing of an answer counts before its last piece is there.
    """

    def __init__(self, memory: AssemblyMemory, owner: int, *, most: int) -> None:
        self._memory, self._owner, self._most = memory, owner, most
        self._pieces, self._held = Pieces(), 0

    @property
    def begun(self) -> bool:
        """Whether pieces of an answer have arrived, and others have not."""
        return self._pieces.begun

    @property
    def in_the_way(self) -> bool:
        """Whether others wait for the memory of this answer."""
        return self._held > 0 and self._memory.wanted

    @property
    def held(self) -> int:
        """The bytes of memory that the answer has taken."""
        return self._held

    async def take(self, message: bytes) -> bytes | None:
        """The answer that this message is or completes; None if more pieces have to come."""
        found = parse(wire.Answer, message)
        if found.code != wire.Code.OK or not found.batch.body_bytes:
            if self.begun:
                raise Refused(wire.Code.MALFORMED)
            return message
        answer = self._pieces.add(found.batch, most=self._most)
        if self.begun and not self._held:
            await self._memory.take(self._owner, found.batch.body_bytes)
            self._held = found.batch.body_bytes
        return answer

    def release(self) -> None:
        """Give the memory back, once the answer is handed over or refused."""
        if self._held:
            self._memory.give(self._owner, self._held)
            self._held = 0
