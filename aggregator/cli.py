"""`confide-aggregator`: for whoever runs campaigns."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from aggregator.keys import SIGNING_KEY, create_keys, read_key
from protocol.terminal import clear_errors

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, help=__doc__
)


@app.callback()
def aggregator() -> None:
    """For whoever runs campaigns."""


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="folder for the keys")],
    address: Annotated[str, typer.Option(help="host name or address that owners reach the server under")] = "127.0.0.1",
) -> None:
    """Write a signing key, and a server certificate of its own authority; what is there already is left alone."""
    with clear_errors():
        written = create_keys(folder, address=address, now=datetime.now(UTC))
        for name in (SIGNING_KEY, "ca.pem", "server.pem", "server.key"):
            print(f"{'wrote' if folder / name in written else 'kept'}  {folder / name}")
        public = read_key(folder / SIGNING_KEY).public_key().public_bytes_raw().hex()
        print(f"Give owners ca.pem, and this public key for `aggregators` in their policy:\n{public}")


if __name__ == "__main__":
    app()
