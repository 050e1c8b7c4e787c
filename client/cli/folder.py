"""The owner's folder: `init`, `backup` and `restore`."""

from pathlib import Path
from typing import Annotated

import typer

from confide.client.cli.options import DEFAULT_HOME, Folder, Yes, confirm
from confide.client.home import Home
from confide.protocol.commands.terminal import clear_errors, printable


def init(home: Folder = DEFAULT_HOME) -> None:
    """Write a policy to edit, a secret with its ledger, and a Flower node's key.

    Files that exist are left alone.
    """
    with clear_errors():
        place = Home(home)
        written = place.create()
        for path in (*place.settings, place.ledger_file):
            print(f"{'wrote' if path in written else 'kept'}  {path}")
        print(
            "Edit the policy (`confide-client allow` adds aggregators and models), then try "
            "`confide-client explain PLAN`."
        )
        print("Back the folder up with `confide-client backup`: secret and ledger belong together.")
        print(f"A Flower aggregator registers your node by {place.node_public_file.name}.")


def backup(
    folder: Annotated[
        Path, typer.Argument(help="a new folder for the backup; keep it as safe as the original")
    ],
    home: Folder = DEFAULT_HOME,
) -> None:
    """Copy policy, keys and ledger into a new folder, all of one moment.

    Make a backup after every campaign: a restored ledger does not know what was answered after it.
    """
    with clear_errors():
        place = Home(home)
        place.backup(folder)
        records, _ = place.ledger().spent_by_record()
        print(f"wrote {folder}: the ledger knows {records} records that have answered")


def restore(
    folder: Annotated[Path, typer.Argument(help="a folder that `backup` wrote")],
    home: Folder = DEFAULT_HOME,
    yes: Yes = False,
) -> None:
    """Restore a backup into an empty folder, or into the folder that it was made from."""
    with clear_errors():
        print("A ledger that is in place keeps its spends, and those of the backup are added.")
        print(
            "If the ledger is lost, the answers that your records gave after the backup are "
            "unknown: they could lose more"
        )
        print(
            "than your policy allows. Restore a backup once: two folders made of one would each "
            "spend the whole budget."
        )
        confirm("Restore it?", yes)
        place = Home(home)
        for path in place.restore(folder):
            print(f"wrote {path}")
        campaigns = place.ledger().campaigns()
        last = (
            f"{campaigns[-1].campaign!r} at {campaigns[-1].last[:19]} (UTC)"
            if campaigns
            else "none"
        )
        print(f"The last campaign that the ledger knows now: {printable(last)}.")
