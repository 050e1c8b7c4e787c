"""Commands in documents: every subcommand and every option that a page types is in the help."""

import re
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest
import typer

from tests.support.repository.imports import sources
from tests.support.repository.places import ROOT

# The command line of every program.
PROGRAMS = {
    "confide": "confide.simulation.cli",
    "confide-client": "confide.client.cli.app",
    "confide-aggregator": "confide.aggregator.cli.server",
    "confide-card": "confide.aggregator.cli.card",
    "confide-shuffler": "confide.shuffler.cli",
}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# Options of pytest and Flower, and of the benchmarks, that sentences quote alone.
OTHERS = {"--durations", "--federation-config"}.union(
    *(re.findall(r'"(--[a-z-]+)"', path.read_text()) for path in sources("benchmarks"))
)
# What a shell reads as the end of a command.
ENDS = {"#", "|", "&&", ">", ";", "&"}


@cache
def program(name: str) -> click.Command:
    return typer.main.get_command(import_module(PROGRAMS[name]).app)


def below(command: click.Command) -> dict[str, click.Command]:
    """The commands of a group, which are loaded when they are asked for; none of a command."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {name: one for name, one in found.items() if one is not None}


def typed(page: str) -> list[str]:
    """The lines of code of a page, and its quoted words that begin with a program."""
    joined = re.sub(r"\\\n\s*", "", page)
    # What a program prints is no command.
    joined = re.sub(r"^```text$.*?^```$", "", joined, flags=re.MULTILINE | re.DOTALL)
    fenced = re.findall(r"^```(?:sh|bash|console|shell)?\n(.*?)^```$", joined, re.M | re.S)
    lines = [line.strip() for block in fenced for line in block.splitlines()]
    lines += [line.strip() for line in re.findall(r"^(?: {4,}|\t).+$", joined, re.MULTILINE)]
    quoted = re.findall(r"`([^`\n]+)`", joined)
    found = [re.sub(r"^\S*/(?=confide)", "", line) for line in lines + quoted]
    return [line for line in found if line.split(maxsplit=1)[:1] and line.split()[0] in PROGRAMS]


def wrong(line: str) -> list[str]:
    """The words of a typed command that its program does not have."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    command, rest, known = program(words[0]), words[1:], {"--help", "--version"}
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
        if rest[0] not in below(command):
            return [rest[0]]
        command, rest = below(command)[rest[0]], rest[1:]
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    missing = []
    for word in rest:
        if word in ENDS:
            break
        name = word.partition("=")[0].rstrip(",.;:")
        if re.fullmatch(r"--[a-z0-9-]+", name) and name not in known:
            missing.append(name)
    return missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_typed_commands_are_in_the_help(page: Path) -> None:
    """A page cannot name a subcommand or an option that was renamed."""
    found = {line: missing for line in typed(page.read_text()) if (missing := wrong(line))}
    assert found == {}


def options(command: click.Command) -> set[str]:
    """All options of a command and of those below it."""
    found = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return found.union(*map(options, below(command).values()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_options_in_the_text_are_those_of_a_program(page: Path) -> None:
    """An option that a sentence quotes exists somewhere."""
    known = OTHERS.union({"--version", "--help"}, *(options(program(name)) for name in PROGRAMS))
    quoted = re.findall(r"`(--[a-z0-9-]+)[^`\n]*`", page.read_text())
    assert {*quoted} - known == set()


def test_enough_commands_are_read() -> None:
    """The pages type commands of every program, many of them with options."""
    lines = [line for page in PAGES for line in typed(page.read_text())]
    for name in PROGRAMS:
        assert sum(line.split()[0] == name for line in lines) >= 3, name
    assert sum("--" in line for line in lines) >= 50


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("    confide evaluate --epsilonn 1\n", ["--epsilonn"]),
        ("Type `confide-card verifyy card.json`.", ["verifyy"]),
        (
            "    venv/bin/confide-client contribute --aggregator a:1 \\\n        --oonce\n",
            ["--oonce"],
        ),
        ("```sh\nconfide-aggregator campaign opened ID\n```\n", ["opened"]),
        ("    confide evaluate --trials 5  # not --this\n", []),
    ],
)
def test_a_word_that_no_program_has_is_found(text: str, missing: list[str]) -> None:
    """In code, in quotes, over several lines; comments are not read."""
    assert [word for line in typed(text) for word in wrong(line)] == missing
