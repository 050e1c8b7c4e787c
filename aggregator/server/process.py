"""A server process from start to stop: the service, the page, and what is done again and again."""

import asyncio
import contextlib
import logging
import math
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confide.aggregator.logs import place_of
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.campaign_runner import Conductor
from confide.aggregator.server.limits import Limits
from confide.aggregator.server.round_cache import RoundCache
from confide.aggregator.server.service import Bounds, Endpoint, Server, Service
from confide.aggregator.storage.report_writer import Writer
from confide.aggregator.storage.store import Store

log = logging.getLogger(__name__)

BEAT_SECONDS, FAILED_SECONDS = 0.2, 2.0


def within_files(limits: Limits) -> Limits:
    """The limits with as many connections as half the files that this process may open; the other
    half is for all else.

    The process takes what the system lets it have beyond what it was started with.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = (
        max(soft, min(hard, 2 * limits.connections))
        if hard != resource.RLIM_INFINITY
        else 2 * limits.connections
    )
    # Some systems say a hard limit that they do not keep.
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    except (OSError, ValueError):
        files = soft
    if files < 2 * limits.connections:
        log.warning(
            "few files may be open, so few connections are taken",
            extra={"files": files, "connections": files // 2},
        )
    return replace(limits, connections=min(limits.connections, files // 2))


async def serve(
    store: Store, conductor: Conductor, door: Endpoint, limits: Limits, vitals: ProcessStatus
) -> None:
    """Serve until a signal says stop; then finish what has begun."""
    limits = within_files(limits)
    writer, desk = Writer(store.engine, vitals), RoundCache(store)
    await asyncio.to_thread(desk.refresh)
    bounds = Bounds()
    service = Service(
        store, writer, desk, limits, vitals, bounds, certified=door.client_authority is not None
    )
    server = Server(service, door, limits, bounds)
    await service.prepare()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    told = set[str]()

    def tell() -> None:
        for name in desk.too_large(limits.message_bytes) - told:
            told.add(name)
            log.error(
                "answers are larger than --message-bytes",
                extra={"campaign": name, "accepted": limits.message_bytes},
            )

    async def look() -> None:
        try:
            if await asyncio.to_thread(desk.refresh):
                service.wake()
            tell()
            vitals.looked = time.monotonic()
        # Whatever it was, health says so at once, and the beat that failed is logged where beats
        # are.
        except Exception:
            vitals.looked = -math.inf
            raise
        finally:
            server.say(healthy=vitals.well(time.monotonic()))

    def advance() -> None:
        vitals.stuck = len(conductor.step())

    await server.start()
    log.info("listening", extra={"port": server.port, "tls": door.certificate is not None})
    beats = [
        asyncio.create_task(_beat(stop, look)),
        asyncio.create_task(_beat(stop, lambda: asyncio.to_thread(advance))),
    ]
    await stop.wait()
    log.info("stopping")
    vitals.stopping = True
    server.decline()
    await asyncio.gather(*beats)
    service.wake(stopping=True)
    await server.stop()
    await asyncio.to_thread(writer.close)
    log.info("stopped")


async def _beat(stop: asyncio.Event, work: Callable[[], Any]) -> None:
    """Do the work again and again; whatever fails is tried again, somewhat later."""
    while not stop.is_set():
        rest = BEAT_SECONDS
        try:
            await work()
        except Exception as error:
            log.error("a beat failed; it is tried again", extra={"at": place_of(error)})
            rest = FAILED_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), rest)
