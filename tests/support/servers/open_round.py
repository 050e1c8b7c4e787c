"""An open round with a writer in this process, for tests of streams."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.limits import MessageMemory, RateLimiter, Reading, ServerLimits
from confide.aggregator.server.rounds.round_cache import CachedCampaign, RoundCache
from confide.aggregator.server.upload import Stream
from confide.aggregator.storage.database import writing
from confide.aggregator.storage.enrolment import Owner
from confide.aggregator.storage.reports.writer import Writer
from confide.protocol.channels.bit import Bit
from confide.protocol.errors import Refused
from confide.protocol.methods.bits import BitQuery
from confide.protocol.plan import digest, write_query
from confide.protocol.wire import wire_pb2 as wire
from tests.support.owners.answers import answer, bit_batch
from tests.support.servers.servers import Place, plan_now

CHANNEL = Bit(epsilon=4.0)
REPORTS = 500
OWNER = Owner(1, "owner")


class OpenRound:
    """An open round and a writer in this process."""

    def __init__(self, folder: Path, url: str = "", *, expected: int = 100_000) -> None:
        self.place, self.removed = Place(folder, url), False
        plan = plan_now(expected_records=expected)
        self.campaign, self.plan = self.place.campaign(plan), digest(plan.to_bytes())
        self.place.enrol("owner")
        query = write_query(BitQuery(CHANNEL, 0.0, 1.0, (0.25, 0.75)), plan=self.plan, round_=0)
        self.place.store.ask(self.campaign, 0, query, now=0.0, seconds=1.0)
        self.writer, cache = (
            Writer(self.place.store.engine, ProcessStatus()),
            RoundCache(self.place.store),
        )
        cache.refresh()
        self.standing = cache.campaign(self.campaign)

    def stream(self, memory: MessageMemory) -> Stream:
        limits = ServerLimits(messages_a_second=1e9)

        async def look_again() -> CachedCampaign:
            return self.standing

        async def known() -> None:
            if self.removed:
                raise Refused(wire.Code.UNAUTHENTICATED)

        rate_limiter = RateLimiter(limits, ProcessStatus(), now=time.monotonic)
        reading = Reading(limits.message_bytes)
        return Stream(
            OWNER,
            self.standing,
            self.writer,
            rate_limiter,
            limits,
            reading,
            memory,
            look_again,
            known,
        )

    def answer(self, number: int) -> bytes:
        return answer(bit_batch(REPORTS, first=REPORTS * number), plan=self.plan)

    @contextmanager
    def stuck(self) -> Iterator[None]:
        """Nothing becomes durable meanwhile."""
        with writing(self.place.store.engine).begin():
            yield

    def close(self) -> None:
        self.writer.close()
        self.place.close()
