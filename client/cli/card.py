"""`card`: fetch a published card and verify it on the owner's machine."""

from pathlib import Path
from typing import Annotated

import typer

from confide.client.cli.connection import connected
from confide.client.cli.options import DEFAULT_HOME, Folder, fail
from confide.client.home import Home
from confide.client.transport.grpc_client import Aggregator
from confide.protocol.cards.card import Card, parse_card
from confide.protocol.cards.verify.findings import Finding, failures
from confide.protocol.cards.words.in_words import headline
from confide.protocol.commands.terminal import printable
from confide.protocol.errors import BadInput
from confide.protocol.files import write_whole


@connected
def card(
    remote: Aggregator,
    out: Annotated[Path, typer.Option(help="file for the card")] = Path("card.json"),
    home: Folder = DEFAULT_HOME,
) -> None:
    """Fetch the published card of a campaign and verify it here.

    Exit code 0: all of it holds; 1: it is not published yet, not from an aggregator of your policy,
    or does not hold.
    """
    # The verifier loads scipy, which takes longer than the other commands take to run.
    from confide.protocol.cards.verify.card import verify

    text, found = _fetch(remote, trusted=Home(home).policy().aggregators)
    about = Finding(
        "campaign",
        (found.provenance["plan"] or "").startswith(remote.campaign),
        "it is the card of another one",
    )
    findings = [about, *verify(found)]
    write_whole(out, text)
    print(f"wrote {out}")
    broken = failures(findings)
    for line in broken:
        print(printable(line))
    if broken:
        raise typer.Exit(1)
    print(printable(headline(found)))
    print(f"holds: {len(findings)} clauses recomputed, signed by {found.key.hex()}")


def _fetch(remote: Aggregator, *, trusted: frozenset[bytes]) -> tuple[str, Card]:
    """The card as text and as a value; exit code 1 unless a trusted aggregator has published it."""
    text = remote.card()
    if text is None:
        fail("the card of this campaign is not published yet")
    try:
        card = parse_card(text)
    except BadInput as error:
        fail(f"what the aggregator sends is no card: {printable(str(error))}")
    if card.key not in trusted:
        fail(f"the card's key {card.key.hex() or '(none)'} is not among the policy's `aggregators`")
    return text, card
