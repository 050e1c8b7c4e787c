"""Which owner a token belongs to, from a copy of the enrolled owners in memory.

A known token is accepted without reading the database while the copy is recent. Callers with
unknown tokens wait together for one reading of the database, and their number is bounded, so
enrolled owners never wait for them.
"""

import asyncio
import logging
import math
import time

from confide.aggregator.logs import place_of
from confide.aggregator.server.limits import Slots
from confide.aggregator.storage.enrolment import Enrolment, Owner, token_hash
from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire

log = logging.getLogger(__name__)

# How long a copy is used, and the least time between two readings.
BELIEVED_SECONDS, PAUSE_SECONDS = 2.5, 0.1


class OwnerDirectory:
    """The enrolled owners by the hashes of their tokens, for use in one event loop."""

    def __init__(self, enrolment: Enrolment, *, strangers: int) -> None:
        self._enrolment, self._strangers = enrolment, Slots(strangers)
        self._owners: dict[bytes, Owner] = {}
        self._read_at = -math.inf
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Read who is enrolled now."""
        await self._since(time.monotonic())

    async def owner_of(self, token: str) -> Owner:
        """The owner that a token was made for; an unknown token is refused."""
        arrived, name = time.monotonic(), token_hash(token)
        if name in self._owners:
            await self._since(arrived - BELIEVED_SECONDS)
        else:
            with self._strangers.one():
                await self._since(arrived)
        owner = self._owners.get(name)
        if owner is None:
            raise Refused(wire.Code.UNAUTHENTICATED)
        return owner

    async def _since(self, moment: float) -> None:
        """Wait for a reading that began after this moment."""
        while self._read_at < moment:
            if self._reading is None:
                self._reading = asyncio.create_task(self._read())
            # A caller that is cancelled does not cancel the reading for the others.
            await asyncio.shield(self._reading)

    async def _read(self) -> None:
        try:
            await asyncio.sleep(max(0.0, self._read_at + PAUSE_SECONDS - time.monotonic()))
            began = time.monotonic()
            self._owners = await asyncio.to_thread(self._enrolment.everybody)
            self._read_at = began
        # Whatever fails here fails in the database; owners are told to try again later.
        except Exception as error:
            log.error("owners could not be looked up", extra={"raised": place_of(error)})
            raise Refused(wire.Code.UNAVAILABLE) from None
        finally:
            self._reading = None
