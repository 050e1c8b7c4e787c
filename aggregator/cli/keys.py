"""The commands that write keys and certificates: `init` and `owner certificate`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from confide.aggregator.keys import (
    OWNERS_CERTIFICATE,
    SIGNING_KEY,
    certify_owner,
    create_keys,
    read_key,
)
from confide.protocol.commands.terminal import clear_errors

OwnerName = Annotated[
    str, typer.Argument(help="name of the owner; with mutual TLS, also the name in its certificate")
]


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
