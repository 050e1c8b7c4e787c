"""Reading something again for all who wait for it, as rarely as a fixed pause says."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable

from confide.aggregator.logs import place_of
from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire

log = logging.getLogger(__name__)

# The least time between the beginnings of two readings.
PAUSE_SECONDS = 0.1


class SharedReading:
    """Reads for callers in one event loop, who wait together for one reading.

    So however many ask, the database is read at most once a pause.
    """

    def __init__(self, read: Callable[[], Awaitable[object]], *, what: str) -> None:
        """`what` is read, in the words of the log."""
        self._read, self._what = read, what
        self._began = -math.inf
        self._reading: asyncio.Task[None] | None = None

    async def since(self, moment: float) -> None:
        """Wait for a reading that began after this moment."""
        while self._began < moment:
            if self._reading is None:
                self._reading = asyncio.create_task(self._once())
            # A caller that is cancelled does not cancel the reading for the others.
            await asyncio.shield(self._reading)

    async def _once(self) -> None:
        try:
            await asyncio.sleep(max(0.0, self._began + PAUSE_SECONDS - time.monotonic()))
            began = time.monotonic()
            await self._read()
            self._began = began
        # Whatever fails here fails in the database; owners are told to try again later.
        except Exception as error:
            log.error(f"{self._what} could not be looked up", extra={"raised": place_of(error)})
            raise Refused(wire.Code.UNAVAILABLE) from None
        finally:
            self._reading = None
