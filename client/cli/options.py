"""Options and replies that several commands share."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from confide.client.training.computing import DEVICE_WORDS, ENGINE_WORDS

DEFAULT_HOME = Path("~/.confide").expanduser()
Folder = Annotated[
    Path, typer.Option("--home", help="folder of policy, secret and ledger", envvar="CONFIDE_HOME")
]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]
NewRecords = Annotated[
    bool,
    typer.Option(
        "--new-records",
        help="most records of this file are new, rather than old ones under other ids",
    ),
]

Device = Annotated[str, typer.Option(help=DEVICE_WORDS)]
Engine = Annotated[str, typer.Option(help=ENGINE_WORDS)]


def confirm(question: str, yes: bool) -> None:
    """Ask unless `--yes` was given; exit code 1 if the owner says no."""
    if not yes and not typer.confirm(question):
        print("nothing was changed")
        raise typer.Exit(1)


def fail(why: str) -> NoReturn:
    """End with one line on standard error and exit code 1."""
    print(f"error: {why}", file=sys.stderr)
    raise typer.Exit(1)
