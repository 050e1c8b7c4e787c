"""Which owner a token belongs to, from a copy of the enrolled owners in memory.

A known token is accepted without reading the database while the copy is recent. Callers with
unknown tokens wait together for one reading of the database, and their number is bounded, so
enrolled owners never wait for them.
"""

import asyncio
import time

from confide.aggregator.server.bounds import Slots
from confide.aggregator.server.shared_reading import SharedReading
from confide.aggregator.storage.enrolment import Enrolment, Owner, token_hash
from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire

# How long a copy is used.
BELIEVED_SECONDS = 2.5


class OwnerDirectory:
    """The enrolled owners by the hashes of their tokens, for use in one event loop."""

    def __init__(self, enrolment: Enrolment, *, strangers: int) -> None:
        self._enrolment, self._strangers = enrolment, Slots(strangers)
        self._owners: dict[bytes, Owner] = {}
        self._reading = SharedReading(self._read, what="owners")

    async def refresh(self) -> None:
        """Read who is enrolled now."""
        await self._reading.since(time.monotonic())

    async def owner_of(self, token: str) -> Owner:
        """The owner that a token was made for; an unknown token is refused."""
        arrived, name = time.monotonic(), token_hash(token)
        if name in self._owners:
            await self._reading.since(arrived - BELIEVED_SECONDS)
        else:
            with self._strangers.one():
                await self._reading.since(arrived)
        owner = self._owners.get(name)
        if owner is None:
            raise Refused(wire.Code.UNAUTHENTICATED)
        return owner

    async def _read(self) -> None:
        self._owners = await asyncio.to_thread(self._enrolment.everybody)
