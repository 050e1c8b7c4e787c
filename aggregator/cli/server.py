"""`confide-aggregator`: for whoever runs campaigns."""

import asyncio
import os
import secrets
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from confide.aggregator.cli.campaign import Database, campaign_app, open_store
from confide.aggregator.cli.chain import chain_command
from confide.aggregator.clock import Clock
from confide.aggregator.keys import (
    OWNERS_CERTIFICATE,
    SIGNING_KEY,
    certify_owner,
    create_keys,
    read_certificates,
    read_key,
    read_pair,
)
from confide.aggregator.logs import log_to_stderr
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.campaign_runner import CampaignRunner
from confide.aggregator.server.grpc_server import Endpoint
from confide.aggregator.server.limits import ServerLimits
from confide.aggregator.server.process import serve as serve_until_stopped
from confide.aggregator.storage.database import DEFAULT, connect, upgrade
from confide.aggregator.storage.enrolment import Enrolment
from confide.aggregator.storage.store import Store
from confide.protocol.command_line import CommandLine
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.option_groups import grouped
from confide.protocol.terminal import clear_errors
from confide.protocol.wire.service import is_loopback

app = CommandLine(__doc__)
owner_app = CommandLine("Who may send reports.")
database_app = CommandLine("The database of campaigns.")
app.add_typer(campaign_app, name="campaign")
app.add_typer(owner_app, name="owner")
app.add_typer(database_app, name="db")
app.command("chain")(chain_command)

MOST_PORT = 65535
OwnerName = Annotated[
    str, typer.Argument(help="name of the owner; under mutual TLS its certificate bears the same")
]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="folder for the keys")],
    address: Annotated[
        str, typer.Option(help="host name or address that owners reach the server under")
    ] = "127.0.0.1",
) -> None:
    """Write a signing key, and a server certificate of its own authority; what is there already is
    left alone."""
    with clear_errors():
        written = create_keys(folder, address=address, now=datetime.now(UTC))
        for name in (SIGNING_KEY, "ca.pem", "server.pem", "server.key"):
            print(f"{'wrote' if folder / name in written else 'kept'}  {folder / name}")
        public = read_key(folder / SIGNING_KEY).public_key().public_bytes_raw().hex()
        print(
            f"Give owners ca.pem, and this public key for `aggregators` in their policy:\n{public}"
        )


@dataclass(frozen=True)
class EndpointOptions:
    """Where the server listens, and its certificates."""

    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on")] = "127.0.0.1:8443"
    tls_cert: Annotated[Path | None, typer.Option(help="certificate of the server (PEM)")] = None
    tls_key: Annotated[Path | None, typer.Option(help="its private key (PEM)")] = None
    client_ca: Annotated[
        Path | None, typer.Option(help="authority of owners' certificates (owners.pem): mutual TLS")
    ] = None
    insecure_loopback: Annotated[
        bool, typer.Option(help="no TLS, and only owners on this machine")
    ] = False

    def endpoint(self) -> Endpoint:
        """The endpoint with the certificates read; contradictions are refused."""
        host, _, port = self.listen.rpartition(":")
        if not (
            host and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= MOST_PORT
        ):
            raise BadInput(
                f"--listen is {self.listen!r}; accepted is HOST:PORT with a port from 0 to "
                f"{MOST_PORT}"
            )
        if self.insecure_loopback:
            return self._insecure(host)
        if self.tls_cert is None or self.tls_key is None:
            raise BadInput(
                "--tls-cert and --tls-key are needed; `confide-aggregator init` writes a pair"
            )
        certificate, key = read_pair(self.tls_cert, self.tls_key)
        owners = None if self.client_ca is None else read_certificates(self.client_ca)
        return Endpoint(self.listen, certificate, key, owners)

    def _insecure(self, host: str) -> Endpoint:
        if not is_loopback(self.listen):
            raise BadInput(
                f"--insecure-loopback with {host}; without TLS only a loopback address is "
                "accepted, as 127.0.0.1"
            )
        if self.tls_cert or self.tls_key or self.client_ca:
            raise BadInput("--insecure-loopback with certificates; accepted is one or the other")
        return Endpoint(self.listen)


@dataclass(frozen=True)
class LimitOptions:
    """What owners may ask of the server."""

    message_bytes: Annotated[int, typer.Option(help="largest message")] = ServerLimits.message_bytes
    rate: Annotated[float, typer.Option(help="messages a second an owner")] = (
        ServerLimits.messages_a_second
    )
    open_calls: Annotated[int, typer.Option(help="open calls an owner")] = ServerLimits.open_calls
    idle_seconds: Annotated[
        float, typer.Option(help="a stream that is silent for so long is ended")
    ] = ServerLimits.idle_seconds
    stream_seconds: Annotated[float, typer.Option(help="the longest a stream may last")] = (
        ServerLimits.stream_seconds
    )
    connections: Annotated[int, typer.Option(help="connections at a time, of everybody")] = (
        ServerLimits.connections
    )
    byte_rate: Annotated[
        float, typer.Option(help="bytes a second an owner; it saves up 16 seconds")
    ] = ServerLimits.bytes_a_second

    def limits(self) -> ServerLimits:
        return ServerLimits(
            message_bytes=self.message_bytes,
            messages_a_second=self.rate,
            open_calls=self.open_calls,
            idle_seconds=self.idle_seconds,
            stream_seconds=self.stream_seconds,
            connections=self.connections,
            bytes_a_second=self.byte_rate,
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
    """The page, with database connections of its own, so that its readers never delay reports."""
    # Most servers and all other commands need nothing of it.
    from confide.aggregator.web.server import web_page

    return web_page(port, store=Store(connect(db)), key=key, status=status)


@owner_app.command("add")
def owner_add(
    name: OwnerName,
    db: Database = DEFAULT,
    records: Annotated[
        int | None,
        typer.Option(help="most records it may contribute to a campaign; else the plan's share"),
    ] = None,
) -> None:
    """Enrol an owner and print its token, once; run again, the new token replaces the old one."""
    with clear_errors():
        print(Enrolment(open_store(db).engine).add(name, records=records))


@owner_app.command("certificate")
def owner_certificate(
    name: OwnerName,
    keys: Annotated[
        Path, typer.Option(help="folder of `init`; the owners' authority is made there, once")
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


@owner_app.command("remove")
def owner_remove(name: OwnerName, db: Database = DEFAULT) -> None:
    """Shut an owner out; what it has sent stays counted."""
    with clear_errors():
        Enrolment(open_store(db).engine).remove(name)


@owner_app.command("list")
def owner_list(db: Database = DEFAULT) -> None:
    """Who is enrolled."""
    with clear_errors():
        for name, enrolled, records in Enrolment(open_store(db).engine).names():
            most = "" if records is None else f"  (at most {records} records)"
            print(f"{'enrolled' if enrolled else 'removed '}  {name}{most}")


@database_app.command("upgrade")
def database_upgrade(db: Database = DEFAULT) -> None:
    """Bring a database to this version; every other command does it too."""
    with clear_errors():
        upgrade(connect(db))


if __name__ == "__main__":
    app()
