"""A server process from start to stop: the service, and the work that is repeated beside it."""

import asyncio
import contextlib
import logging
import math
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from confide.aggregator.logs import place_of
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.bounds import Bounds
from confide.aggregator.server.grpc_server import Endpoint, GrpcServer
from confide.aggregator.server.limits import ServerLimits
from confide.aggregator.server.rounds.round_cache import RoundCache
from confide.aggregator.server.service import Service
from confide.aggregator.storage.reports.writer import Writer
from confide.aggregator.storage.store import Store

log = logging.getLogger(__name__)

REPEAT_SECONDS, FAILED_SECONDS = 0.2, 2.0


class Runner(Protocol):
    """Advances the campaigns of a store, a step at a time."""

    def step(self) -> set[str]:
        """Advance what is due; return the ids of campaigns that stand still."""


def within_files(limits: ServerLimits) -> ServerLimits:
    """The limits, with at most half as many connections as the process may have files open.

    The process first raises its own limit on files, as far as the system allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = (
        max(soft, min(hard, 2 * limits.connections))
        if hard != resource.RLIM_INFINITY
        else 2 * limits.connections
    )
    # Some systems state a hard limit that they do not grant.
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
    store: Store,
    *,
    runner: Runner,
    endpoint: Endpoint,
    limits: ServerLimits,
    status: ProcessStatus,
    collecting: bool = False,
) -> None:
    """Serve until a signal says stop; then finish what has begun.

    `collecting` is a shuffler, to which owners of shuffled campaigns send sealed reports.
    """
    limits, bounds = within_files(limits), Bounds()
    writer, cache = Writer(store.engine, status), RoundCache(store, collecting=collecting)
    await asyncio.to_thread(cache.refresh)
    service = Service(
        store=store,
        writer=writer,
        cache=cache,
        limits=limits,
        status=status,
        bounds=bounds,
        certified=endpoint.client_authority is not None,
    )
    server = GrpcServer(service, endpoint, limits=limits, bounds=bounds)
    await service.prepare()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    refresh = _Refresh(service, server, status)

    def advance() -> None:
        status.stuck = len(runner.step())

    await server.start()
    log.info("listening", extra={"port": server.port, "tls": endpoint.certificate is not None})
    repeated = [
        asyncio.create_task(_repeat(stop, refresh)),
        asyncio.create_task(_repeat(stop, lambda: asyncio.to_thread(advance))),
    ]
    await stop.wait()
    log.info("stopping")
    status.stopping = True
    server.announce_stop()
    await asyncio.gather(*repeated)
    service.wake(stopping=True)
    await server.stop()
    await asyncio.to_thread(writer.close)
    log.info("stopped")


@dataclass
class _Refresh:
    """Reads the campaigns again, tells those who watch, and sets the answer of health checks."""

    service: Service
    server: GrpcServer
    status: ProcessStatus

    async def __call__(self) -> None:
        try:
            await self.service.read_campaigns()
            self.status.looked = time.monotonic()
        # Health checks are answered with the failure at once; `_repeat` logs it.
        except Exception:
            self.status.looked = -math.inf
            raise
        finally:
            self.server.set_health(healthy=self.status.healthy(time.monotonic()))


async def _repeat(stop: asyncio.Event, work: Callable[[], Any]) -> None:
    """Do the work again and again; after a failure the pause is longer."""
    while not stop.is_set():
        rest = REPEAT_SECONDS
        try:
            await work()
        except Exception as error:
            log.error(
                "a repeated task failed; it is tried again", extra={"raised": place_of(error)}
            )
            rest = FAILED_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), rest)
