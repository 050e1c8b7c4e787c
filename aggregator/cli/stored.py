"""The option of every command that needs the database, and the store in it."""

from typing import Annotated

import typer

from confide.aggregator.storage.database import connect, upgrade
from confide.aggregator.storage.store import Store

Database = Annotated[
    str,
    typer.Option("--db", help="SQLite file, or postgresql://USER@HOST/NAME", envvar="CONFIDE_DB"),
]


def open_store(url: str) -> Store:
    """The store at this URL, brought up to date."""
    engine = connect(url)
    upgrade(engine)
    return Store(engine)
