"""`confide-shuffler`: for the party that mixes owners' reports, independent of the operator."""

import asyncio
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from confide.aggregator.campaigns.planning.shuffler_file import shuffler_file
from confide.aggregator.cli.server import OWNER_COMMANDS
from confide.aggregator.cli.server_options import EndpointOptions, LimitOptions
from confide.aggregator.cli.stored import Database, open_store
from confide.aggregator.keys import create_keys, read_key
from confide.aggregator.logs import log_to_stderr
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.process import serve as serve_until_stopped
from confide.aggregator.storage.database import DEFAULT
from confide.aggregator.storage.stored_campaign import Settings
from confide.client.cli.connection import read_access, say
from confide.client.transport.grpc_client import Aggregator
from confide.client.transport.retry import Patience, Unreachable
from confide.protocol.commands.command_line import CommandLine
from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.files import write_new
from confide.protocol.shuffling import authority_digest
from confide.shuffler.joining import join
from confide.shuffler.relay import Relay
from confide.shuffler.standing import standing

app = CommandLine(__doc__)
app.add_typer(CommandLine("Who may send reports.", OWNER_COMMANDS), name="owner")

SIGNING_KEY, PUBLIC_FILE = "shuffler.key", "shuffler.json"
# How long a step tries to reach the aggregator before the next step tries again.
STEP_SECONDS = 2.0


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="folder for the keys")],
    address: Annotated[
        str, typer.Option(help="host name or address that owners reach the shuffler under")
    ] = "127.0.0.1",
) -> None:
    """Write a signing key, a server certificate of its own authority, and shuffler.json, which
    names both in plans; what is there already is left alone."""
    with clear_errors():
        written = create_keys(folder, address=address, now=datetime.now(UTC), signing=SIGNING_KEY)
        public = read_key(folder / SIGNING_KEY).public_key().public_bytes_raw()
        authority = authority_digest((folder / "ca.pem").read_bytes())
        named = shuffler_file(key=public, authority=authority)
        written += write_new({folder / PUBLIC_FILE: named})
        for name in (SIGNING_KEY, "ca.pem", "server.pem", "server.key", PUBLIC_FILE):
            print(f"{'wrote' if folder / name in written else 'kept'}  {folder / name}")
        print(
            f"Give owners ca.pem, and the aggregator {PUBLIC_FILE} for `campaign create "
            "--shuffler`."
        )


@dataclass(frozen=True)
class UpstreamOptions:
    """The aggregator, to which this shuffler is one enrolled owner."""

    aggregator: Annotated[str, typer.Option(help="HOST:PORT of the aggregator")]
    token_file: Annotated[
        Path, typer.Option(help="file with the token that the aggregator gave this shuffler")
    ]
    ca: Annotated[Path | None, typer.Option(help="the aggregator's authority (its ca.pem)")] = None
    cert: Annotated[Path | None, typer.Option(help="own certificate, under mutual TLS")] = None
    cert_key: Annotated[Path | None, typer.Option(help="its key")] = None
    patience: Annotated[
        float, typer.Option(help="seconds to wait for the plans of new campaigns")
    ] = 60.0

    def remote(self, campaign: str, *, patience: float) -> Aggregator:
        access = read_access(
            self.aggregator, self.token_file, ca=self.ca, cert=self.cert, key=self.cert_key
        )
        return Aggregator(access, campaign, patience=Patience(patience, longest_pause=1.0))


@dataclass(frozen=True)
class RoundOptions:
    """When a round is handed over, once it has the crowd of its plan; for new campaigns."""

    round_seconds: Annotated[float, typer.Option(help="how long a round accepts reports")] = 3600.0
    owners: Annotated[
        int, typer.Option(help="end a round early when so many have sent or declined; 0: never")
    ] = 0
    enough: Annotated[
        int, typer.Option(help="end a round early after so many reports; 0: never")
    ] = 0

    def settings(self) -> Settings:
        return Settings(self.round_seconds, self.owners, self.enough)


@app.command()
@grouped
def serve(
    *,
    key: Annotated[Path, typer.Option(help="key that signs rounds (shuffler.key of `init`)")],
    campaign: Annotated[
        list[str], typer.Option(help="id of a campaign of the aggregator; may be repeated")
    ],
    upstream: UpstreamOptions,
    at: EndpointOptions,
    asked: LimitOptions,
    rounds: RoundOptions,
    db: Database = DEFAULT,
) -> None:
    """Take sealed reports over gRPC and hand over whole mixed rounds, until stopped by SIGTERM or
    Ctrl-C. Logs are JSON lines on stderr."""
    with clear_errors():
        endpoint, limits, signing = at.endpoint(), asked.limits(), read_key(key)
        if endpoint.certificate is None:
            raise BadInput(
                "--insecure-loopback is given; owners know a shuffler by its certificate, so "
                "accepted are --tls-cert and --tls-key"
            )
        log_to_stderr("confide.shuffler")
        store, status = open_store(db), ProcessStatus()
        try:
            joined = {
                join(
                    store,
                    upstream.remote(name, patience=upstream.patience),
                    settings=rounds.settings(),
                    key=signing.public_key().public_bytes_raw(),
                    now=time.time(),
                ): name
                for name in campaign
            }
        except Unreachable as error:
            say(f"error: {error}")
            raise typer.Exit(1) from None
        remotes = {one: upstream.remote(one, patience=STEP_SECONDS) for one in joined}
        relay = Relay(store, remotes, key=signing, entropy=os_entropy, now=time.time)
        asyncio.run(
            serve_until_stopped(
                store,
                runner=relay,
                endpoint=endpoint,
                limits=limits,
                status=status,
                collecting=True,
            )
        )


@app.command()
def status(
    db: Database = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="print everything as JSON")] = False,
) -> None:
    """How campaigns stand: what each round waits for, or how many reports it handed over."""
    with clear_errors():
        found = standing(open_store(db))
        if as_json:
            print(json.dumps(found, indent=2))
            return
        for one in found:
            reason = f"  ({one['reason']})" if one["reason"] else ""
            print(f"{one['id']}  {one['state']:<10}  {one['title']}{reason}")
            for row in one["rounds"]:
                print(f"  round {row['number']}: {row['words']}")


@app.command()
def purge(
    campaign: Annotated[str, typer.Argument(help="id of the campaign, or its first characters")],
    db: Database = DEFAULT,
) -> None:
    """Delete what is left of a campaign that is over: who sent which batch, and ids of reports.
    Counts of what each owner sent, and of what was handed over, stay."""
    with clear_errors():
        store = open_store(db)
        print(f"{store.purge(store.campaign(campaign).id, now=time.time())} batches deleted")


if __name__ == "__main__":
    app()
