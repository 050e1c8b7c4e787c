from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from confide.protocol.commands.command_line import CommandLine
from confide.protocol.commands.option_groups import grouped


@dataclass(frozen=True)
class Size:
    """Two options of one subject."""

    width: Annotated[int, typer.Option(help="in columns")]
    height: Annotated[int, typer.Option("--tall", help="in lines")] = 3


def test_fields_of_a_group_are_options_of_the_command() -> None:
    """The command gets the group made from what was typed, with its defaults."""
    found: list[tuple[Size, str, str]] = []

    def draw(context: typer.Context, size: Size, colour: str = "grey") -> None:
        """Draw a box."""
        found.append((size, colour, str(context.info_name)))

    app = CommandLine("boxes")
    app.command("draw")(grouped(draw))
    app.command("other")(lambda: None)
    runner = CliRunner()
    assert runner.invoke(app, ["draw", "--width", "4"]).exit_code == 0
    typed = ["draw", "--width", "4", "--tall", "5", "--colour", "red"]
    assert runner.invoke(app, typed).exit_code == 0
    assert found == [(Size(4), "grey", "draw"), (Size(4, 5), "red", "draw")]
    assert runner.invoke(app, ["draw"]).exit_code == 2
    shown = runner.invoke(app, ["draw", "--help"]).output
    assert "Draw a box." in shown
    assert "in columns" in shown


def test_help_has_what_arguments_are_and_whole_sentences() -> None:
    """Once for each argument; the list of commands says all of a sentence that takes two lines."""

    def show(where: Annotated[str, typer.Argument(help="which drawer")]) -> None:
        """Show everything that was ever put into a drawer of this box, in the order of its days."""

    app = CommandLine("boxes")
    app.command("show")(show)
    app.command("other")(lambda: None)
    runner = CliRunner()
    listed = " ".join(runner.invoke(app, ["--help"]).output.split())
    assert "put into a drawer of this box, in the order of its days." in listed
    assert runner.invoke(app, ["show", "--help"]).output.count("which drawer  [required]") == 1


def test_a_command_that_is_mistyped_is_suggested_once_without_loading_others() -> None:
    """Also one that would be loaded when it is asked for."""
    app = CommandLine("boxes", {"show": "nowhere:show"})
    app.command("other")(lambda: None)
    for typed, meant in (("shwo", "show"), ("othre", "other")):
        found = CliRunner().invoke(app, [typed])
        assert found.exit_code == 2
        assert found.output.count(f"Did you mean '{meant}'?") == 1
    assert "Did you mean" not in CliRunner().invoke(app, ["zzz"]).output
