"""Commands for an owner whose node is a Flower SuperNode: `register`, `bundle-hash` and `pin`."""

from pathlib import Path
from typing import Annotated

import typer

from confide.client.cli.options import DEFAULT_HOME, Folder, NewRecords
from confide.client.home import Home
from confide.client.owner import open_owner
from confide.client.transport import pinned_launcher
from confide.protocol.commands.terminal import clear_errors


def register(
    records: Annotated[Path, typer.Argument(help="your records (.npz, .csv or .parquet)")],
    home: Folder = DEFAULT_HOME,
    new_records: NewRecords = False,
) -> None:
    """Note a file's records in the ledger before a Flower node uses it.

    `contribute` does so by itself.
    """
    with clear_errors():
        known = open_owner(Home(home), records, None, new_records=new_records).admit(new=False)
        print(f"{records}: the ledger knows all {known} records (or persons) of it")


def bundle_hash(
    project: Annotated[Path, typer.Argument(help="checkout of the Flower app")] = Path("."),
) -> None:
    """Print the hash of the bundle that Flower ships from a checkout.

    Read its code, then allow it with `pin`.
    """
    with clear_errors():
        print(pinned_launcher.bundle_hash(project))


def pin(
    folder: Annotated[
        Path,
        typer.Argument(
            help="folder for the launchers; put it first on the PATH of flower-supernode"
        ),
    ],
    allow: Annotated[
        list[str], typer.Option(help="hash of a bundle whose runs are answered; may be repeated")
    ] = [],  # noqa: B006
) -> None:
    """Write launchers for a SuperNode that never runs the code it is sent.

    It runs the client that is installed here.
    """
    with clear_errors():
        pinned_launcher.pin(folder, allow)
        print(
            f"wrote launchers into {folder}; start the node with PATH={folder.resolve()}:$PATH "
            "flower-supernode ..."
        )
        print(f"{len(pinned_launcher.read_allowed(folder))} bundles are allowed")
