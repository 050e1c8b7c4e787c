"""`confide-aggregator serve`: a server of campaigns, until it is stopped."""

import asyncio
import os
import secrets
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from confide.aggregator.cli.server_options import MOST_PORT, EndpointOptions, LimitOptions
from confide.aggregator.cli.stored import Database, open_store
from confide.aggregator.clock import Clock
from confide.aggregator.keys import read_key
from confide.aggregator.logs import log_to_stderr
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.process import serve as serve_until_stopped
from confide.aggregator.server.rounds.campaign_runner import CampaignRunner
from confide.aggregator.storage.database import DEFAULT, connect
from confide.aggregator.storage.store import Store
from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.exact.sampling import os_entropy


@grouped
def serve(
    *,
    key: Annotated[Path, typer.Option(help="key that signs cards (aggregator.key of `init`)")],
    at: EndpointOptions,
    asked: LimitOptions,
    db: Database = DEFAULT,
    http: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_PORT,
            help="port of this machine for the read-only page, /metrics and /healthz",
        ),
    ] = None,
) -> None:
    """Take reports over gRPC and advance campaigns, until stopped by SIGTERM or Ctrl-C. Logs are
    JSON lines on stderr."""
    with clear_errors():
        endpoint, limits, signing = at.endpoint(), asked.limits(), read_key(key)
        log_to_stderr()
        store, name = open_store(db), f"{os.getpid()}-{secrets.token_hex(4)}"
        public, status = signing.public_key().public_bytes_raw(), ProcessStatus()
        store.check_key(public)
        runner = CampaignRunner(
            store,
            name=name,
            key=signing,
            entropy=os_entropy,
            clock=Clock(time.time, time.monotonic),
        )
        with nullcontext() if http is None else _page(http, db=db, key=public, status=status):
            asyncio.run(
                serve_until_stopped(
                    store, runner=runner, endpoint=endpoint, limits=limits, status=status
                )
            )
        store.release_lease(name)


def _page(port: int, *, db: str, key: bytes, status: ProcessStatus) -> AbstractContextManager[None]:
    """The page, with separate database connections, so that its readers never delay reports."""
    # Most servers and all other commands need nothing of it.
    from confide.aggregator.web.server import web_page

    return web_page(port, store=Store(connect(db)), key=key, status=status)
