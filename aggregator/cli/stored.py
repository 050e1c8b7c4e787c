"""The option of every command that needs the database, the store in it, and `db upgrade`."""

from typing import Annotated

import typer

from confide.aggregator.storage.database import DEFAULT, connect, upgrade
from confide.aggregator.storage.store import Store
from confide.protocol.commands.terminal import clear_errors

Database = Annotated[
    str,
    typer.Option("--db", help="SQLite file, or postgresql://USER@HOST/NAME", envvar="CONFIDE_DB"),
]


def open_store(url: str) -> Store:
    """The store at this URL, brought up to date."""
    engine = connect(url)
    upgrade(engine)
    return Store(engine)


def upgrade_database(db: Database = DEFAULT) -> None:
    """Upgrade a database to this version; every other command does so, too."""
    with clear_errors():
        upgrade(connect(db))
