"""The operator's commands, with settings that are accepted."""

from typing import Any

from typer.testing import CliRunner

from confide.aggregator.cli.server import app
from confide.aggregator.keys import SIGNING_KEY
from tests.support.servers.servers import Place

GOOD = {"campaign": '"bits:one-shot"', "labels": "5", "model": f'"{"00" * 32}"', "records": "2000"}


def said(*arguments: Any) -> tuple[int, str]:
    """The exit code of a command and what it complains of; a traceback is no answer."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr


def create(place: Place, **settings: str) -> tuple[int, str]:
    """`campaign create` with a file of these settings as TOML."""
    named = {name.replace("_", "-"): value for name, value in (GOOD | settings).items()}
    file = place.folder / "campaign.toml"
    file.write_text("".join(f"{name} = {value}\n" for name, value in named.items()))
    return said(
        "campaign", "create", "--key", place.keys / SIGNING_KEY, "--db", place.url, "--file", file
    )


def required() -> list[str]:
    """The settings without which there is no campaign, as options."""
    return [word for name, value in GOOD.items() for word in (f"--{name}", value.strip('"'))]
