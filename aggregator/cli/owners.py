"""The commands by which a server's owners are enrolled."""

from typing import Annotated

import typer

from confide.aggregator.cli.keys import OwnerName
from confide.aggregator.cli.stored import Database, open_store
from confide.aggregator.storage.database import DEFAULT
from confide.aggregator.storage.enrolment import Enrolment
from confide.protocol.commands.terminal import clear_errors


def owner_add(
    name: OwnerName,
    db: Database = DEFAULT,
    records: Annotated[
        int | None,
        typer.Option(
            help="most records that it may contribute to a campaign; else the plan's share"
        ),
    ] = None,
) -> None:
    """Enrol an owner and print its token, once; run again, the new token replaces the old one."""
    with clear_errors():
        print(Enrolment(open_store(db).engine).add(name, records=records))


def owner_remove(name: OwnerName, db: Database = DEFAULT) -> None:
    """Shut an owner out; what it has already sent still counts."""
    with clear_errors():
        Enrolment(open_store(db).engine).remove(name)


def owner_list(db: Database = DEFAULT) -> None:
    """Who is enrolled."""
    with clear_errors():
        for name, enrolled, records in Enrolment(open_store(db).engine).names():
            most = "" if records is None else f"  (at most {records} records)"
            print(f"{'enrolled' if enrolled else 'removed '}  {name}{most}")
