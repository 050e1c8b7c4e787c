"""`confide-card`: search a contract; show, verify, compare and export the cards that come of it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from confide.aggregator.cli.search import HELP, search_command
from confide.protocol.cards.card import card_schema, read_card
from confide.protocol.cards.differences import differences
from confide.protocol.cards.exports import FORMS, Curator, exported
from confide.protocol.cards.page import as_html, as_markdown
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.verify.findings import failures
from confide.protocol.cards.words.in_words import headline
from confide.protocol.commands.command_line import CommandLine
from confide.protocol.commands.terminal import clear_errors, printable
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.files import write_whole

app = CommandLine(__doc__)

CardFile = Annotated[Path, typer.Argument(help="a card, as JSON")]

KeyOption = Annotated[
    str | None, typer.Option("--key", help="public key (hexadecimal) that must have signed it")
]
UnsignedOption = Annotated[
    bool, typer.Option("--unsigned", help="accept a card without a signature")
]

app.command("search", help=HELP)(search_command)


@app.command()
def show(
    card: CardFile,
    *,
    page: Annotated[
        Path | None, typer.Option("--html", help="write a page instead of printing Markdown")
    ] = None,
    key: KeyOption = None,
    unsigned: UnsignedOption = False,
) -> None:
    """Print a card as Markdown, or write it as one HTML file with plots.

    The findings of verification are shown in any case.
    """
    with clear_errors():
        found = read_card(card)
        findings = verify(found, key=_demanded(key, unsigned), unsigned=unsigned)
        if page is None:
            print(as_markdown(found, findings))
        else:
            write_whole(page, as_html(found, findings))
            print(f"wrote {page}")


@app.command("verify")
def verify_command(
    card: CardFile,
    key: KeyOption = None,
    unsigned: UnsignedOption = False,
) -> None:
    """Verify a card from its formal layer alone. Exit code 0: all holds; 1: a clause does not,
    named; 2: unreadable.

    That a card holds is not that its contract does: the decision is printed too.
    """
    with clear_errors():
        demanded = _demanded(key, unsigned)
        found = read_card(card)
        findings = verify(found, key=demanded, unsigned=unsigned)
        broken = failures(findings)
        for line in broken:
            print(printable(line))
        if broken:
            raise typer.Exit(1)
        print(printable(headline(found)))
        if not found.signature:
            print(
                f"holds: {len(findings)} clauses recomputed. Not signed: who issued this card, and "
                "that its counts and channels"
            )
            print("were what it says, is not shown, and anybody may have changed it")
            return
        print(f"holds: {len(findings)} clauses recomputed, signed by {found.key.hex()}")
        if demanded is None:
            print(
                "Not compared with any key: anybody may have changed this card and signed it again "
                "with a key of their own;"
            )
            print("name the one you expect with --key")


@app.command()
def diff(first: CardFile, second: CardFile) -> None:
    """Show what changed between two cards, and in which direction. Exit code 1 if anything did."""
    with clear_errors():
        changes = list(differences(read_card(first), read_card(second)))
        for line in changes:
            print(printable(line))
        if changes:
            raise typer.Exit(1)
        print("the same in every field")


@app.command("export")
def export_command(
    card: CardFile,
    *,
    form: Annotated[
        str,
        typer.Option(
            "--as",
            help=(
                "model-card: a section for the README of a model; registry: an entry for the "
                "registry of differential-privacy deployments (YAML)"
            ),
        ),
    ] = "model-card",
    key: KeyOption = None,
    curator: Annotated[str, typer.Option(help="registry: who deploys it")] = "",
    sector: Annotated[str, typer.Option(help="registry: for example Industry, Academia")] = "",
    use: Annotated[str, typer.Option(help="registry: what the model is used for")] = "",
    out: Annotated[Path | None, typer.Option(help="file to write [default: print]")] = None,
) -> None:
    """Write a card in the format of another place that describes models or deployments.

    Only a card that verifies and whose noise was private is exported.
    """
    with clear_errors():
        check_choice("--as", form, FORMS)
        found = read_card(card)
        findings = verify(found, key=_public_key(key))
        text = exported(found, findings, form=form, curator=Curator(curator, sector, use))
        if out is None:
            print(text, end="")
        else:
            write_whole(out, text)
            print(f"wrote {out}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of cards."""
    print(json.dumps(card_schema(), indent=2))


def _demanded(key: str | None, unsigned: bool) -> bytes | None:
    """The key that must have signed a card, which one that nobody signed cannot have."""
    if unsigned and key is not None:
        raise BadInput(
            "--unsigned and --key are given; accepted is one of them: what nobody signed has no key"
        )
    return _public_key(key)


def _public_key(key: str | None) -> bytes | None:
    try:
        return None if key is None else bytes.fromhex(key)
    except ValueError:
        raise BadInput(f"key is {key!r}; accepted are 64 hexadecimal digits") from None


if __name__ == "__main__":
    app(prog_name="confide-card", args=sys.argv[1:])
