"""How every command line of the project is made: plain help that an 80-column terminal and a pipe
show alike."""

from collections.abc import Callable, Iterable
from typing import Any

import click
import typer
from typer.core import TyperCommand, TyperGroup


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


class _Group(TyperGroup):
    context_class = _Context


class CommandLine(typer.Typer):
    """A group of commands; without arguments it shows its help."""

    def __init__(self, help: str | None) -> None:
        super().__init__(
            cls=_Group,
            help=help,
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
        )

    def command(self, name: str | None = None, **given: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": _Command} | given)
