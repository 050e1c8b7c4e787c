"""The roll of owners, held in memory: who is on it comes in without troubling the disk, and who is
not waits for a new look.

However many strangers come, they wait for one look together, and only so many of them: nobody on
the roll waits for them.
"""

import asyncio
import logging
import math
import time

from confide.aggregator.logs import place_of
from confide.aggregator.server.limits import Places
from confide.aggregator.storage.enrolment import Enrolment, Owner, token_hash
from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire

log = logging.getLogger(__name__)

# How long a look is believed, and how soon the next may follow it.
BELIEVED_SECONDS, PAUSE_SECONDS = 2.5, 0.1


class OwnerDirectory:
    """The owners of the last look, by the hashes of their tokens. One event loop."""

    def __init__(self, enrolment: Enrolment, *, strangers: int) -> None:
        self._enrolment, self._strangers = enrolment, Places(strangers)
        self._owners: dict[bytes, Owner] = {}
        self._looked = -math.inf
        self._look: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Learn who is enrolled, before anybody comes."""
        await self._since(time.monotonic())

    async def who(self, token: str) -> Owner:
        """The owner that a token was made for; others are refused."""
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
        """Wait for a look that began after this moment."""
        while self._looked < moment:
            if self._look is None:
                self._look = asyncio.create_task(self._again())
            # Who gives up waiting does not take the look from the others.
            await asyncio.shield(self._look)

    async def _again(self) -> None:
        try:
            await asyncio.sleep(max(0.0, self._looked + PAUSE_SECONDS - time.monotonic()))
            began = time.monotonic()
            self._owners = await asyncio.to_thread(self._enrolment.everybody)
            self._looked = began
        # Whatever fails here fails in the store; owners are told to come back, and nothing is
        # believed meanwhile.
        except Exception as error:
            log.error("owners could not be looked up", extra={"at": place_of(error)})
            raise Refused(wire.Code.UNAVAILABLE) from None
        finally:
            self._look = None
