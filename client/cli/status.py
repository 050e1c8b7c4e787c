"""What was spent, and whether everything is in order: `status` and `doctor`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from confide.client.cli.options import DEFAULT_HOME, Folder
from confide.client.home import Home
from confide.client.records.reader import read_records
from confide.client.records.records import Records
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from confide.protocol.models.scorer import check_model

HEADINGS = (
    "campaign",
    "plan",
    "records",
    "epsilon a record",
    "queries",
    "spent but not sent",
    "last (UTC)",
)


def status(home: Folder = DEFAULT_HOME) -> None:
    """What was spent, on what, for whom."""
    with clear_errors():
        place = Home(home)
        policy, ledger = place.policy(), place.ledger()
        table = Table(title="campaigns answered", title_justify="left")
        for heading in HEADINGS:
            table.add_column(heading, overflow="fold")
        for row in ledger.campaigns():
            amounts = (str(row.records), f"{row.epsilon:g}", str(row.queries), str(row.unanswered))
            table.add_row(Text(row.campaign), row.plan.hex()[:16], *amounts, row.last[:19])
        records, most = ledger.spent_by_record()
        console = Console() if sys.stdout.isatty() else Console(width=120)
        console.print(table)
        print(
            f"{records} records have answered; the most any has spent is {most:g} of "
            f"{policy.epsilon_per_record:g} allowed."
        )


def doctor(
    home: Folder = DEFAULT_HOME,
    records: Annotated[Path | None, typer.Option(help="file of records to check")] = None,
    model: Annotated[Path | None, typer.Option(help="model that scores them (.onnx)")] = None,
) -> None:
    """Check files, permissions and ledger, and model and records if given.

    Nothing is scored and nothing is spent. Exit code 1 if something is not in order.
    """
    place = Home(home)
    checks: dict[str, Callable[[], str]] = {
        "policy": lambda: f"{len(place.policy().aggregators)} trusted aggregators",
        "secret": lambda: f"{len(place.secret())} bytes{_exposure(place.secret_file)}",
        "ledger": lambda: (
            f"{len(place.ledger().campaigns())} campaigns{_exposure(place.ledger_file)}"
        ),
    }
    if model is not None:
        checks["model"] = lambda: _described(model, place)
    if records is not None:
        checks["records"] = lambda: _held(
            read_records(records, public=place.policy().columns_may_leave)
        )
    failed = False
    for name, check in checks.items():
        try:
            print(f"ok      {name}: {check()}")
        except BadInput as error:
            failed = True
            print(f"WRONG   {name}: {error}")
    if failed:
        raise typer.Exit(1)


def _held(records: Records) -> str:
    """What a file holds, for its owner's eyes: targets in their own unit."""
    said = f"{len(records)} records"
    if records.task.of_numbers:
        known = records.truth[np.isfinite(records.truth)]
        span = f" from {known.min():g} to {known.max():g}" if len(known) else ""
        missing = len(records) - len(known)
        said += f" with targets{span} (your numbers, which stay here)"
        said += f"; {missing} have no target and count as not covered" if missing else ""
    return said


def _exposure(path: Path) -> str:
    return ", readable by others: `chmod 600` it" if os.stat(path).st_mode & 0o077 else ""


def _described(path: Path, place: Home) -> str:
    model = Model.read(path)
    check_model(model, str(path))
    policy = place.policy()
    if model.digest in policy.vetted_models:
        listed = "vetted"
    elif model.digest in policy.models:
        listed = "allowed"
    else:
        listed = "not allowed yet"
    return f"digest {model.digest.hex()}, {listed} by your policy"
