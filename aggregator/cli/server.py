"""`confide-aggregator`: for operators, who run campaigns."""

import asyncio
import os
import secrets
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from confide.aggregator.cli.campaign import campaign_app
from confide.aggregator.cli.chain import chain_command
from confide.aggregator.cli.owners import OwnerName, owner_commands
from confide.aggregator.cli.serving import MOST_PORT, EndpointOptions, LimitOptions
from confide.aggregator.cli.stored import Database, open_store
from confide.aggregator.clock import Clock
from confide.aggregator.keys import (
    OWNERS_CERTIFICATE,
    SIGNING_KEY,
    certify_owner,
    create_keys,
    read_key,
)
from confide.aggregator.logs import log_to_stderr
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.process import serve as serve_until_stopped
from confide.aggregator.server.rounds.campaign_runner import CampaignRunner
from confide.aggregator.storage.database import DEFAULT, connect, upgrade
from confide.aggregator.storage.store import Store
from confide.protocol.commands.command_line import CommandLine
from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.exact.sampling import os_entropy

app = CommandLine(__doc__)
owner_app = owner_commands()
database_app = CommandLine("The database of campaigns.")
app.add_typer(campaign_app, name="campaign")
app.add_typer(owner_app, name="owner")
app.add_typer(database_app, name="db")
app.command("chain")(chain_command)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="folder for the keys")],
    address: Annotated[
        str, typer.Option(help="host name or address that owners reach the server under")
    ] = "127.0.0.1",
) -> None:
    """Write a signing key, and a server certificate with an authority of its own; existing files
    are left alone."""
    with clear_errors():
        written = create_keys(folder, address=address, now=datetime.now(UTC))
        for name in (SIGNING_KEY, "ca.pem", "server.pem", "server.key"):
            print(f"{'wrote' if folder / name in written else 'kept'}  {folder / name}")
        public = read_key(folder / SIGNING_KEY).public_key().public_bytes_raw().hex()
        print(
            f"Give owners ca.pem, and this public key for `aggregators` in their policy:\n{public}"
        )


@app.command()
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


@owner_app.command("certificate")
def owner_certificate(
    name: OwnerName,
    keys: Annotated[
        Path, typer.Option(help="folder of `init`; the owners' authority is created there once")
    ],
    out: Annotated[Path, typer.Option(help="folder for the key and certificate of this owner")],
) -> None:
    """Write an owner's key and certificate, for a server with `--client-ca`; the token is needed
    besides."""
    with clear_errors():
        for path in certify_owner(name, keys=keys, out=out, now=datetime.now(UTC)):
            print(f"wrote  {path}")
        print(
            f"Give both to the owner, for --key and --cert, and {keys / OWNERS_CERTIFICATE} to "
            "`serve --client-ca`."
        )


@database_app.command("upgrade")
def database_upgrade(db: Database = DEFAULT) -> None:
    """Upgrade a database to this version; every other command does so, too."""
    with clear_errors():
        upgrade(connect(db))


if __name__ == "__main__":
    app()
