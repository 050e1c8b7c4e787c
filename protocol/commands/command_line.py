"""How every command line is made: plain help, `--version` and shell completion.

Help is the same text on a terminal of 80 columns and in a pipe.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any, get_type_hints

import click
import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from confide.protocol.commands.terminal import clear_errors
from confide.protocol.version import CODE_VERSION

NO_PLACES: Mapping[str, str] = MappingProxyType({})
# A list of commands has the first sentence of each, however long it is.
_SENTENCE = 1_000


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(f"{context.info_name} {CODE_VERSION}")
        context.exit()


_VERSION = click.Option(
    ["--version"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)


class _Formatter(click.HelpFormatter):
    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        # Typer escapes brackets for rich also where rich does not print the help.
        super().write_dl(
            [(term, text.replace("\\[", "[")) for term, text in rows], col_max, col_spacing
        )


class _Context(click.Context):
    formatter_class = _Formatter


class _Command(TyperCommand):
    context_class = _Context

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        # Since click 8.5 an argument has a help of its own, which typer 0.20 leaves empty.
        hints = get_type_hints(self.callback, include_extras=True)
        for parameter in self.params:
            for info in getattr(hints.get(str(parameter.name)), "__metadata__", ()):
                if isinstance(info, ArgumentInfo):
                    parameter.help = info.help

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: typer lists arguments before the options."""

    def get_short_help_str(self, limit: int = 0) -> str:
        return super().get_short_help_str(_SENTENCE)


class _Group(TyperGroup):
    context_class = _Context
    # Where the commands are that are loaded when they are asked for, by name.
    places = NO_PLACES

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.places, *(name for name in self.commands if name not in self.places)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.places and cmd_name not in self.commands:
            self.commands[cmd_name] = _load(self.places[cmd_name], cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # Click and typer look for the nearest among commands that are loaded.
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            said = f"{error.message} Did you mean {near[0]!r}?"
            raise click.UsageError(said, ctx) from None

    def get_short_help_str(self, limit: int = 0) -> str:
        return super().get_short_help_str(_SENTENCE)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        found = super().get_params(ctx)
        return found if ctx.parent is not None else [_VERSION, *found]


def _load(place: str, name: str) -> click.Command:
    """Import the command, or the group of commands, at `module:attribute`."""
    module, _, attribute = place.partition(":")
    # Typer would end a command that is interrupted here without a word.
    with clear_errors():
        found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        alone = CommandLine(None)
        alone.command(name)(found)
        return typer.main.get_group(alone).commands[name]
    return typer.main.get_group(found)


class CommandLine(typer.Typer):
    """A group of commands, or a whole command line; without arguments it shows its help.

    The outermost group has `--version`, `--install-completion` and `--show-completion`. `places`
    are commands of other modules, as `module:attribute`, which are loaded when they are asked for:
    a command waits for what it needs itself. They come first in the help.
    """

    def __init__(self, help: str | None, places: Mapping[str, str] = NO_PLACES) -> None:
        super().__init__(
            cls=type("_Group", (_Group,), {"places": places}),
            help=help,
            no_args_is_help=True,
            suggest_commands=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
        )
        # A group of commands even if there is one, or none that is loaded yet.
        self.callback()(lambda: None)

    def command(self, name: str | None = None, **given: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": _Command} | given)
